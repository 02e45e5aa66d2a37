// What every part of the page uses: elements, signals and hooks, under one roof. It does not hold state.
import htm from "htm";
import { h } from "preact";

export { render, Fragment } from "preact";
export { useEffect, useLayoutEffect, useRef, useState, useMemo, useCallback } from "preact/hooks";
export { signal, computed, effect, batch, useSignal, useComputed, useSignalEffect } from "@preact/signals";

export const html = htm.bind(h);

export const classes = (...names) => names.filter(Boolean).join(" ");

// Call a function once calls have stopped coming for a while.
export function calmly(run, ms) {
  let waiting = 0;
  return (...values) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => run(...values), ms);
  };
}
