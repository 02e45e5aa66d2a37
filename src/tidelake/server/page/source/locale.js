// Some browsers say that they speak a language which they themselves do not know: en-US@posix, where the machine has no
// locale. Libraries ask for numbers in it as they load, so it is mended before them. It does not choose a language.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}
