package tidelake;

/**
 * Decodes standalone files of pcodec: unsigned integers and doubles, in all modes and by all differences that its first
 * major version writes. It knows nothing of pages, nulls or columns.
 *
 * A file is chunks. A chunk has one to three streams of whole numbers, of which its values are made: the numbers
 * themselves or multiples, what is added to them, and how far back the number is that one differs from. A stream has
 * bins; a number is the low end of its bin and so many bits more. Which bin is entropy coded, by four decoders in turn.
 *
 * Whatever bytes it is given, it returns or throws IllegalArgumentException, and takes no more memory than some times
 * what it was given. Bytes are read past what was checked only where the array has them.
 */
public final class Pco extends PcoBits {
  static final long MAGIC = 0x216F6370L;  // "pco!"
  static final int STANDALONE = 3;
  static final int MAJOR = 4;
  static final int U32 = 1;
  static final int U64 = 2;
  static final int F64 = 6;
  static final int U16 = 7;
  static final int CLASSIC = 0;
  static final int INT_MULT = 1;
  static final int FLOAT_MULT = 2;
  static final int FLOAT_QUANT = 3;
  static final int DICT = 4;
  static final int CONSECUTIVE = 1;
  static final int LOOKBACK = 2;
  static final int CONVOLVED = 3;
  static final int MAX_WINDOW_LOG = 24;
  static final int MANTISSA = 52;
  static final long SIGN = Long.MIN_VALUE;
  static final long WHOLE = 1L << 53;  // from which on doubles are counted by their bits
  static final long WHOLE_BITS = 0x4340000000000000L;
  static final long LOW_32 = 0xFFFFFFFFL;
  static final ThreadLocal READERS = new ThreadLocal();

  final PcoStream lookbacks = new PcoStream();
  final PcoStream primary = new PcoStream();
  final PcoStream secondary = new PcoStream();
  int mode = 0;
  long base = 0;
  long[] dictionary = new long[0];
  int words = 0;  // of the dictionary
  int delta = 0;
  long window = 0;
  int quantization = 0;
  long bias = 0;

  /**
   * Decodes all numbers of a file: integers of so many bytes, or doubles as their bits if width is 0.
   *
   * Throws IllegalArgumentException for anything that is not a whole file of so many numbers of that type.
   */
  public static void read(byte[] data, int from, int to, int width, long[] out, int count) {
    if (from < 0 || to < from || to > data.length || count < 0 || count > out.length) {
      throw new IllegalArgumentException("pco: no such bytes or numbers");
    }
    Pco reader = (Pco) READERS.get();
    if (reader == null) {
      reader = new Pco();
      READERS.set(reader);
    }
    try {
      reader.source = data;
      reader.at = 8L * from;
      reader.end = 8L * to;
      reader.file(width, out, count);
    } catch (RuntimeException error) {
      throw error instanceof IllegalArgumentException ? error : new IllegalArgumentException("pco: " + error, error);
    } finally {
      reader.source = null;
    }
  }

  static int kindOf(int width) {
    switch (width) {
      case 0:
        return F64;
      case 2:
        return U16;
      case 4:
        return U32;
      case 8:
        return U64;
      default:
        throw corrupt("no numbers of " + width + " bytes");
    }
  }

  void file(int width, long[] out, int count) {
    int kind = kindOf(width);
    if (bits(32) != MAGIC || bits(8) != STANDALONE) {
      throw corrupt("not a standalone file of a known version");
    }
    long uniform = bits(8);
    if (uniform != 0 && uniform != kind) {
      throw corrupt("numbers of type " + uniform + " where " + kind + " is needed");
    }
    long hint = bits(1 + (int) bits(6));
    if (hint != 0 && hint != count) {
      throw corrupt(hint + " numbers where " + count + " are needed");
    }
    align();
    if (bits(8) != MAJOR) {
      throw corrupt("a format that is not known");
    }
    bits(8);  // minor versions add to what chunks may say, and chunks that say more are refused
    int done = 0;
    for (long next = bits(8); next != 0; next = bits(8)) {
      int size = (int) bits(24) + 1;
      if (next != kind || size > count - done) {
        throw corrupt("a chunk of " + size + " numbers of type " + next);
      }
      chunk(kind, out, done, size);
      done += size;
    }
    if (done != count || at != end) {
      throw corrupt(done + " numbers where " + count + " are needed, or bytes behind them");
    }
  }

  void chunk(int kind, long[] out, int start, int count) {
    int width = kind == U16 ? 16 : kind == U32 ? 32 : 64;
    mode = (int) bits(4);
    readMode(kind, width);
    delta = (int) bits(4);
    primary.width = mode == DICT ? 32 : width;
    secondary.width = width;
    lookbacks.width = 32;
    readDelta();
    boolean isPaired = mode != CLASSIC && mode != DICT;
    boolean isBack = delta == LOOKBACK;
    if (isBack) {
      lookbacks.read(this);
    }
    primary.read(this);
    if (isPaired) {
      secondary.read(this);
    }
    align();

    if (isBack) {
      readStart(lookbacks, count);
    }
    readStart(primary, count);
    if (isPaired) {
      readStart(secondary, count);
    }
    align();

    int place = start;
    for (int left = count; left > 0; left -= BATCH) {
      int now = Math.min(left, BATCH);
      if (isBack) {
        lookbacks.decode(this, lookbacks.values, 0, Math.min(left - primary.order, BATCH));
      }
      numbers(primary, out, place, now, left);
      if (isPaired) {
        numbers(secondary, secondary.values, 0, now, left);
      }
      join(kind, out, place, now);
      place += now;
    }
    align();
    primary.forget();
    secondary.forget();
  }

  void readMode(int kind, int width) {
    boolean isReal = kind == F64;
    switch (mode) {
      case CLASSIC:
        return;
      case INT_MULT:
        base = bits(width);
        if (isReal || base == 0) {
          throw corrupt("multiples of " + base);
        }
        return;
      case FLOAT_MULT:
        base = isReal ? real(bits(width)) : 0;
        if (base << 1 == 0 || Double.isNaN(Double.longBitsToDouble(base))
            || Double.isInfinite(Double.longBitsToDouble(base))) {
          throw corrupt("multiples of what is no number");
        }
        return;
      case FLOAT_QUANT:
        base = bits(8);
        if (!isReal || base < 1 || base > MANTISSA) {
          throw corrupt("quanta of " + base + " bits");
        }
        return;
      case DICT:
        readDictionary(isReal, width);
        return;
      default:
        throw corrupt("mode " + mode);
    }
  }

  void readDictionary(boolean isReal, int width) {
    words = (int) bits(25);
    align();
    if ((long) words * width > end - at) {
      throw corrupt("a dictionary that ends past the file");
    }
    if (dictionary.length < words || dictionary.length > KEPT) {
      dictionary = new long[words];
    }
    for (int i = 0; i < words; i++) {
      long word = bits(width);
      dictionary[i] = isReal ? real(word) : word;
    }
  }

  void readDelta() {
    int order = 0;
    boolean isBoth = false;
    switch (delta) {
      case APART:
        break;
      case CONSECUTIVE:
        order = (int) bits(3);
        isBoth = bits(1) == 1;
        if (order == 0) {
          throw corrupt("differences of no order");
        }
        break;
      case LOOKBACK:
        int log = 1 + (int) bits(5);
        int stateLog = (int) bits(4);
        isBoth = bits(1) == 1;
        if (log > MAX_WINDOW_LOG || stateLog > log) {
          throw corrupt("a window of 2**" + log + " numbers, 2**" + stateLog + " of them given");
        }
        window = 1L << log;
        order = 1 << stateLog;
        break;
      case CONVOLVED:
        order = readWeights();
        break;
      default:
        throw corrupt("differences of kind " + delta);
    }
    lookbacks.delta = APART;
    lookbacks.order = 0;
    primary.delta = delta;
    primary.order = order;
    secondary.delta = isBoth ? delta : APART;
    secondary.order = isBoth ? order : 0;
  }

  /** Reads by what weights a number is foretold from those before it, and returns how many there are. */
  int readWeights() {
    quantization = (int) bits(5);
    bias = bits(64) ^ SIGN;
    int order = 1 + (int) bits(5);
    double sum = 0;
    for (int i = 0; i < order; i++) {
      long weight = bits(32) - (1L << 31);
      primary.convolution[i] = weight;
      sum += Math.abs((double) weight);
    }
    int width = primary.width;
    if (width > 32 || Math.abs((double) bias) + sum * (1L << width) >= Math.pow(2, 2 * width - 1)) {
      throw corrupt("weights beyond the width of numbers");
    }
    return order;
  }

  /** Reads where a page begins: the numbers before its first difference, and the states of its decoders. */
  void readStart(PcoStream of, int count) {
    if (of.bins == 0 && count > primary.order) {
      throw corrupt("numbers without bins");
    }
    if (of.delta == LOOKBACK && of.past.length < Math.max(count, of.order)) {
      of.past = new long[Math.max(count, of.order)];
    }
    long[] first = of.delta == LOOKBACK ? of.past : of.moments;
    for (int i = 0; i < of.order; i++) {
      first[i] = bits(of.width);
    }
    of.known = of.order;
    of.given = 0;
    of.one = (int) bits(of.log);
    of.two = (int) bits(of.log);
    of.three = (int) bits(of.log);
    of.four = (int) bits(of.log);
  }

  /** Decodes numbers of a batch; those that are differences are added up. */
  void numbers(PcoStream of, long[] into, int start, int count, int left) {
    int fresh = Math.min(left - of.order, BATCH);
    of.decode(this, into, start, fresh);
    switch (of.delta) {
      case CONSECUTIVE:
        for (int i = of.order - 1; i >= 0; i--) {
          of.moments[i] = summed(into, start, start + count, of.moments[i]);
        }
        return;
      case LOOKBACK:
        goBack(of, into, start, fresh);
        System.arraycopy(of.past, of.given, into, start, count);
        of.given += count;
        return;
      case CONVOLVED:
        convolve(of, into, start, count);
        return;
      default:
        return;
    }
  }

  static long summed(long[] into, int start, int stop, long first) {
    long sum = first;
    for (int i = start; i < stop; i++) {
      long step = into[i];
      into[i] = sum;
      sum += step;
    }
    return sum;
  }

  void goBack(PcoStream of, long[] into, int start, int fresh) {
    long[] past = of.past;
    long[] back = lookbacks.values;
    int known = of.known;
    for (int i = 0; i < fresh; i++) {
      long far = back[i] & LOW_32;
      if (far < 1 || far > window || far > known) {
        throw corrupt("a number " + far + " before another");
      }
      past[known] = into[start + i] + past[known - (int) far];
      known++;
    }
    of.known = known;
  }

  void convolve(PcoStream of, long[] into, int start, int count) {
    long mask = MASKS[of.width];
    long[] moments = of.moments;
    long[] weights = of.convolution;
    int order = of.order;
    for (int i = 0; i < count; i++) {
      long sum = bias;
      for (int k = 0; k < order; k++) {
        sum += weights[k] * moments[i + k];
      }
      moments[order + i] = into[start + i] + (Math.max(sum, 0) >> quantization) & mask;
      into[start + i] = moments[i];
    }
    System.arraycopy(moments, count, moments, 0, order);
  }

  /** Makes values of the numbers of a batch. */
  void join(int kind, long[] out, int start, int count) {
    long mask = MASKS[kind == U16 ? 16 : kind == U32 ? 32 : 64];
    long[] added = secondary.values;
    int stop = start + count;
    switch (mode) {
      case INT_MULT:
        for (int i = start; i < stop; i++) {
          out[i] = out[i] * base + added[i - start] & mask;
        }
        return;
      case FLOAT_MULT:
        joinMultiples(out, start, count);
        return;
      case FLOAT_QUANT:
        joinQuanta(out, start, count);
        return;
      case DICT:
        for (int i = start; i < stop; i++) {
          long word = out[i] & LOW_32;
          if (word >= words) {
            throw corrupt("word " + word + " of a dictionary of " + words);
          }
          out[i] = dictionary[(int) word];
        }
        return;
      default:
        if (kind == F64) {
          for (int i = start; i < stop; i++) {
            out[i] = real(out[i]);
          }
        } else if (kind != U64) {
          for (int i = start; i < stop; i++) {
            out[i] &= mask;
          }
        }
    }
  }

  void joinMultiples(long[] out, int start, int count) {
    double unit = Double.longBitsToDouble(base);
    long[] added = secondary.values;
    for (int i = 0; i < count; i++) {
      long of = out[start + i];
      long size = (of ^ ~(of >> 63)) & Long.MAX_VALUE;
      long whole = size < WHOLE ? Double.doubleToRawLongBits((double) size) : WHOLE_BITS + (size - WHOLE);
      double product = Double.longBitsToDouble(whole ^ ~of & SIGN) * unit;
      out[start + i] = real(ordered(Double.doubleToRawLongBits(product)) + added[i] ^ SIGN);
    }
  }

  void joinQuanta(long[] out, int start, int count) {
    int shift = (int) base;
    long highest = (1L << shift) - 1;
    long[] added = secondary.values;
    for (int i = 0; i < count; i++) {
      long high = out[start + i] << shift;
      out[start + i] = real(high + (added[i] ^ (high >>> 63) - 1 & highest));
    }
  }

  /** The bits of the double that has a place among all: negative ones first. */
  static long real(long place) {
    return place ^ ((place >>> 63) - 1 | SIGN);
  }

  static long ordered(long bits) {
    return bits ^ (bits >> 63 | SIGN);
  }

}
