package tidelake;

import org.apache.spark.unsafe.Platform;

/** The 64 bits of XXH3 without a seed, by which extents check their bytes. */
class Sums {
  static final long P32_1 = 0x9E3779B1L;
  static final long P32_2 = 0x85EBCA77L;
  static final long P32_3 = 0xC2B2AE3DL;
  static final long P64_1 = 0x9E3779B185EBCA87L;
  static final long P64_2 = 0xC2B2AE3D27D4EB4FL;
  static final long P64_3 = 0x165667B19E3779F9L;
  static final long P64_4 = 0x85EBCA77C2B2AE63L;
  static final long P64_5 = 0x27D4EB2F165667C5L;
  static final long MIX_1 = 0x165667919E3779F9L;
  static final long MIX_2 = 0x9FB21C651E98DF25L;
  static final long LOW = 0xFFFFFFFFL;
  static final int STRIPE = 64;
  static final int STRIPES = 16;  // of a round, after which the sums are scrambled
  static final byte[] SECRET = bytes(
      "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
      + "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
      + "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
      + "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e");

  static byte[] bytes(String hex) {
    byte[] found = new byte[hex.length() / 2];
    for (int i = 0; i < found.length; i++) {
      found[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
    }
    return found;
  }

  static long of(byte[] data, int length) {
    if (length > 240) {
      return ofMany(data, length);
    }
    if (length > 128) {
      return ofSome(data, length);
    }
    if (length > 16) {
      long sum = length * P64_1;
      for (int i = (length - 1) / 32; i >= 0; i--) {
        sum += mixed(data, 16 * i, 32 * i) + mixed(data, length - 16 * (i + 1), 32 * i + 16);
      }
      return avalanche(sum);
    }
    return ofFew(data, length);
  }

  static long ofFew(byte[] data, int length) {
    if (length > 8) {
      long low = word(data, 0) ^ word(SECRET, 24) ^ word(SECRET, 32);
      long high = word(data, length - 8) ^ word(SECRET, 40) ^ word(SECRET, 48);
      return avalanche(length + Long.reverseBytes(low) + high + folded(low, high));
    }
    if (length >= 4) {
      long both = half(data, length - 4) + (half(data, 0) << 32);
      long keyed = both ^ word(SECRET, 8) ^ word(SECRET, 16);
      long sum = keyed ^ Long.rotateLeft(keyed, 49) ^ Long.rotateLeft(keyed, 24);
      sum *= MIX_2;
      sum ^= (sum >>> 35) + length;
      sum *= MIX_2;
      return sum ^ sum >>> 28;
    }
    if (length > 0) {
      long first = data[0] & 255;
      long middle = data[length >> 1] & 255;
      long last = data[length - 1] & 255;
      long all = first << 16 | middle << 24 | last | (long) length << 8;
      return scattered(all ^ half(SECRET, 0) ^ half(SECRET, 4));
    }
    return scattered(word(SECRET, 56) ^ word(SECRET, 64));
  }

  static long ofSome(byte[] data, int length) {
    long sum = length * P64_1;
    for (int i = 0; i < 8; i++) {
      sum += mixed(data, 16 * i, 16 * i);
    }
    sum = avalanche(sum);
    for (int i = 8; i < length / 16; i++) {
      sum += mixed(data, 16 * i, 16 * (i - 8) + 3);
    }
    return avalanche(sum + mixed(data, length - 16, 136 - 17));
  }

  static long ofMany(byte[] data, int length) {
    long[] sums = new long[] {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    int round = STRIPE * STRIPES;
    int rounds = (length - 1) / round;
    for (int n = 0; n < rounds; n++) {
      accumulate(sums, data, n * round, STRIPES);
      for (int i = 0; i < 8; i++) {
        sums[i] = (sums[i] ^ sums[i] >>> 47 ^ word(SECRET, 128 + 8 * i)) * P32_1;
      }
    }
    accumulate(sums, data, rounds * round, (length - 1 - rounds * round) / STRIPE);
    stripe(sums, data, length - STRIPE, 192 - STRIPE - 7);
    long found = length * P64_1;
    for (int i = 0; i < 4; i++) {
      found += folded(sums[2 * i] ^ word(SECRET, 11 + 16 * i), sums[2 * i + 1] ^ word(SECRET, 19 + 16 * i));
    }
    return avalanche(found);
  }

  static void accumulate(long[] sums, byte[] data, int at, int stripes) {
    for (int i = 0; i < stripes; i++) {
      stripe(sums, data, at + STRIPE * i, 8 * i);
    }
  }

  static void stripe(long[] sums, byte[] data, int at, int key) {
    for (int i = 0; i < 8; i++) {
      long value = word(data, at + 8 * i);
      long keyed = value ^ word(SECRET, key + 8 * i);
      sums[i ^ 1] += value;
      sums[i] += (keyed & LOW) * (keyed >>> 32);
    }
  }

  static long mixed(byte[] data, int at, int key) {
    return folded(word(data, at) ^ word(SECRET, key), word(data, at + 8) ^ word(SECRET, key + 8));
  }

  /** The two halves of a product of 128 bits, each without a sign, as one. */
  static long folded(long one, long other) {
    long high = Math.multiplyHigh(one, other) + (one >> 63 & other) + (other >> 63 & one);
    return one * other ^ high;
  }

  static long avalanche(long sum) {
    long mixed = (sum ^ sum >>> 37) * MIX_1;
    return mixed ^ mixed >>> 32;
  }

  static long scattered(long sum) {
    long mixed = (sum ^ sum >>> 33) * P64_2;
    mixed = (mixed ^ mixed >>> 29) * P64_3;
    return mixed ^ mixed >>> 32;
  }

  static long word(byte[] data, int at) {
    return Platform.getLong(data, Platform.BYTE_ARRAY_OFFSET + (long) at);
  }

  static long half(byte[] data, int at) {
    return Platform.getInt(data, Platform.BYTE_ARRAY_OFFSET + (long) at) & LOW;
  }
}
