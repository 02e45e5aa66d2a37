package tidelake;

import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

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
public final class Pco {
  static final int BATCH = 256;  // numbers of a stream that stand together: their bins, then their further bits
  static final int MAX_LOG = 14;  // of the states of a decoder
  // Bytes that must lie ahead of a batch of a stream: bins and bits of all, and what is read with the last of them.
  static final int AHEAD = BATCH * (MAX_LOG + 64) / 8 + 64;
  static final int KEPT = 1 << 18;  // numbers of a chunk whose memory is kept for the next one
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
  static final int APART = 0;  // numbers that are no differences
  static final int CONSECUTIVE = 1;
  static final int LOOKBACK = 2;
  static final int CONVOLVED = 3;
  static final int MAX_WINDOW_LOG = 24;
  static final int MANTISSA = 52;
  static final long SIGN = Long.MIN_VALUE;
  static final long WHOLE = 1L << 53;  // from which on doubles are counted by their bits
  static final long WHOLE_BITS = 0x4340000000000000L;
  static final long LOW_32 = 0xFFFFFFFFL;
  static final long[] MASKS = masks();  // so many ones, for 0 to 64
  static final ThreadLocal READERS = new ThreadLocal();

  final Stream lookbacks = new Stream();
  final Stream primary = new Stream();
  final Stream secondary = new Stream();
  final int[] spans = new int[BATCH];  // how many further bits numbers of a batch have
  final byte[] tail = new byte[2 * AHEAD];  // the last bytes of a file, and zeros
  byte[] source = null;
  long at = 0;  // in bits
  long end = 0;
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
      reader.source = null;
    } catch (RuntimeException error) {
      reader.source = null;
      throw error instanceof IllegalArgumentException ? error : new IllegalArgumentException("pco: " + error, error);
    }
  }

  static IllegalArgumentException corrupt(String what) {
    return new IllegalArgumentException("pco: " + what);
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
      readBins(lookbacks);
    }
    readBins(primary);
    if (isPaired) {
      readBins(secondary);
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
        decode(lookbacks, lookbacks.values, 0, Math.min(left - primary.order, BATCH));
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

  /** Reads the bins of a stream, and makes the table of its decoders: what each state stands for, and which is next. */
  void readBins(Stream of) {
    int log = (int) bits(4);
    int bins = (int) bits(15);
    if (log > MAX_LOG || bins > 1 << log || bins < 2 && log > 0) {
      throw corrupt(bins + " bins in 2**" + log + " states");
    }
    of.reserve(log, bins);
    int spanBits = of.width == 16 ? 5 : of.width == 32 ? 6 : 7;
    long middle = of.delta == APART ? 0 : 1L << of.width - 1;  // differences are stored as if that were nothing
    int total = 0;
    of.widest = 0;
    for (int i = 0; i < bins; i++) {
      int weight = 1 + (int) bits(log);
      long low = bits(of.width);
      int span = (int) bits(spanBits);
      if (span > of.width) {
        throw corrupt("a bin of 2**" + span + " numbers");
      }
      of.weights[i] = weight;
      of.lows[i] = low + middle;
      of.binSpans[i] = span;
      of.widest = Math.max(of.widest, span);
      total += weight;
    }
    if (bins > 0 && total != 1 << log) {
      throw corrupt("bins of " + total + " states of 2**" + log);
    }
    if (bins > 1) {
      of.spread();
    }
  }

  /** Reads where a page begins: the numbers before its first difference, and the states of its decoders. */
  void readStart(Stream of, int count) {
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
    of.one = (int) bits(of.log);
    of.two = (int) bits(of.log);
    of.three = (int) bits(of.log);
    of.four = (int) bits(of.log);
  }

  /** Decodes numbers of a batch; those that are differences are added up. */
  void numbers(Stream of, long[] into, int start, int count, int left) {
    int fresh = Math.min(left - of.order, BATCH);
    decode(of, into, start, fresh);
    switch (of.delta) {
      case CONSECUTIVE:
        for (int i = of.order - 1; i >= 0; i--) {
          of.moments[i] = summed(into, start, start + count, of.moments[i]);
        }
        return;
      case LOOKBACK:
        goBack(of, into, start, fresh);
        System.arraycopy(of.past, of.known - of.order - Math.max(fresh, 0), into, start, count);
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

  void goBack(Stream of, long[] into, int start, int fresh) {
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

  void convolve(Stream of, long[] into, int start, int count) {
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

  static long[] masks() {
    long[] found = new long[65];
    for (int i = 1; i < 65; i++) {
      found[i] = -1L >>> 64 - i;
    }
    return found;
  }

  /** Decodes the next numbers of a stream, without what they are differences of. */
  void decode(Stream of, long[] into, int start, int count) {
    if (count <= 0) {
      return;
    }
    ahead(AHEAD);
    if (of.bins < 2) {
      Arrays.fill(into, start, start + count, of.lows[0]);
      if (of.widest > 0) {
        Arrays.fill(spans, 0, count, of.widest);
      }
    } else if (count == BATCH) {
      batchOfBins(of, into, start);
    } else {
      fewBins(of, into, start, count);
    }
    if (of.widest > 57) {
      addWide(into, start, count);
    } else if (of.widest > 0) {
      add(into, start, count);
    }
    if (at > end) {
      throw corrupt("numbers that end past the file");
    }
  }

  /**
   * Decodes the bins of a whole batch: 8 bytes hold what all four decoders read in a turn.
   *
   * Tables are read without a check of their bounds: spread sees to it that each state is followed by one of them.
   */
  void batchOfBins(Stream of, long[] into, int start) {
    byte[] from = source;
    long[] nodes = of.nodes;
    long[] lows = of.stateLows;
    int[] further = spans;
    long place = Platform.BYTE_ARRAY_OFFSET + (at >>> 3);
    int shift = (int) at & 7;
    int one = of.one;
    int two = of.two;
    int three = of.three;
    int four = of.four;
    for (int i = 0; i < BATCH; i += 4) {
      place += shift >>> 3;
      shift &= 7;
      long word = Platform.getLong(from, place);
      long node = Platform.getLong(nodes, Platform.LONG_ARRAY_OFFSET + 8L * one);
      into[start + i] = Platform.getLong(lows, Platform.LONG_ARRAY_OFFSET + 8L * one);
      further[i] = (int) node >>> 8 & 255;
      one = ((int) node >>> 16) + ((int) (word >>> shift) & (int) (node >>> 32));
      shift += (int) node & 255;

      node = Platform.getLong(nodes, Platform.LONG_ARRAY_OFFSET + 8L * two);
      into[start + i + 1] = Platform.getLong(lows, Platform.LONG_ARRAY_OFFSET + 8L * two);
      further[i + 1] = (int) node >>> 8 & 255;
      two = ((int) node >>> 16) + ((int) (word >>> shift) & (int) (node >>> 32));
      shift += (int) node & 255;

      node = Platform.getLong(nodes, Platform.LONG_ARRAY_OFFSET + 8L * three);
      into[start + i + 2] = Platform.getLong(lows, Platform.LONG_ARRAY_OFFSET + 8L * three);
      further[i + 2] = (int) node >>> 8 & 255;
      three = ((int) node >>> 16) + ((int) (word >>> shift) & (int) (node >>> 32));
      shift += (int) node & 255;

      node = Platform.getLong(nodes, Platform.LONG_ARRAY_OFFSET + 8L * four);
      into[start + i + 3] = Platform.getLong(lows, Platform.LONG_ARRAY_OFFSET + 8L * four);
      further[i + 3] = (int) node >>> 8 & 255;
      four = ((int) node >>> 16) + ((int) (word >>> shift) & (int) (node >>> 32));
      shift += (int) node & 255;
    }
    of.one = one;
    of.two = two;
    of.three = three;
    of.four = four;
    at = 8 * (place - Platform.BYTE_ARRAY_OFFSET) + shift;
  }

  /** Decodes the bins of the last batch of a page. */
  void fewBins(Stream of, long[] into, int start, int count) {
    for (int i = 0; i < count; i++) {
      int word = (int) (Platform.getLong(source, Platform.BYTE_ARRAY_OFFSET + (at >>> 3)) >>> (int) (at & 7));
      long node = of.nodes[of.one];
      into[start + i] = of.stateLows[of.one];
      spans[i] = (int) node >>> 8 & 255;
      int next = ((int) node >>> 16) + (word & (int) (node >>> 32));
      of.one = of.two;
      of.two = of.three;
      of.three = of.four;
      of.four = next;
      at += (int) node & 255;
    }
  }

  /** Adds to the low ends of bins the further bits of numbers, of which none has more than 57. */
  void add(long[] into, int start, int count) {
    byte[] from = source;
    int[] further = spans;
    long[] masks = MASKS;
    long bit = at;
    for (int i = 0; i < count; i++) {
      int span = further[i];
      long word = Platform.getLong(from, Platform.BYTE_ARRAY_OFFSET + (bit >>> 3)) >>> (int) (bit & 7);
      into[start + i] += word & masks[span];
      bit += span;
    }
    at = bit;
  }

  void addWide(long[] into, int start, int count) {
    for (int i = 0; i < count; i++) {
      into[start + i] += word() & MASKS[spans[i]];
      at += spans[i];
    }
  }

  /** The next 64 bits. */
  long word() {
    long place = Platform.BYTE_ARRAY_OFFSET + (at >>> 3);
    int shift = (int) (at & 7);
    return Platform.getLong(source, place) >>> shift | Platform.getLong(source, place + 8) << 1 << 63 - shift;
  }

  long bits(int count) {
    if (count > end - at) {
      throw corrupt("a file that ends early");
    }
    ahead(16);
    long found = word() & MASKS[count];
    at += count;
    return found;
  }

  void align() {
    if (bits((int) (-at & 7)) != 0) {
      throw corrupt("bits where there are none");
    }
  }

  /** Makes sure that so many bytes can be read: near the end of an array, of a copy with zeros behind it. */
  void ahead(int bytes) {
    long place = at >>> 3;
    if (place + bytes > source.length) {
      int rest = (int) ((end >>> 3) - place);
      System.arraycopy(source, (int) place, tail, 0, rest);
      Arrays.fill(tail, rest, tail.length, (byte) 0);
      source = tail;
      at &= 7;
      end = 8L * rest;
    }
  }

  /** A stream of a chunk: its bins, what its numbers are differences of, and where its decoders stand. */
  static final class Stream {
    int width = 0;  // in bits
    int log = 0;
    int bins = 0;
    int widest = 0;  // of the further bits
    long[] lows = new long[1];
    int[] binSpans = new int[1];
    int[] weights = new int[1];
    short[] states = new short[0];
    // Of each state: how many bits it reads (8 bits), how many further bits its bin has (8), the state that follows if
    // what is read is 0 (16), and ones where it reads (16); and the low end of its bin.
    long[] nodes = new long[0];
    long[] stateLows = new long[0];
    int one = 0;
    int two = 0;
    int three = 0;
    int four = 0;
    final long[] values = new long[BATCH];
    int delta = 0;
    int order = 0;  // how many numbers stand before the first difference
    final long[] convolution = new long[32];
    final long[] moments = new long[32 + BATCH];
    long[] past = new long[0];
    int known = 0;  // of the past

    void reserve(int log, int bins) {
      this.log = log;
      this.bins = bins;
      if (lows.length < bins) {
        lows = new long[bins];
        binSpans = new int[bins];
        weights = new int[bins];
      }
      if (bins == 0) {
        lows[0] = 0;
      }
      if (bins > 1 && states.length < 1 << log) {
        states = new short[1 << log];
        nodes = new long[1 << log];
        stateLows = new long[1 << log];
      }
    }

    /** Spreads bins over states, each over as many as its weight, and tells which states follow. */
    void spread() {
      int size = 1 << log;
      int stride = 3 * size / 5 | 1;
      int place = 0;
      for (int i = 0; i < bins; i++) {
        for (int k = weights[i]; k > 0; k--) {
          states[place] = (short) i;
          place = place + stride & size - 1;
        }
      }
      for (int i = 0; i < size; i++) {
        int bin = states[i];
        int next = weights[bin]++;
        int taken = Integer.numberOfLeadingZeros(next) - Integer.numberOfLeadingZeros(size);
        int after = (next << taken) - size;
        nodes[i] = taken | binSpans[bin] << 8 | (long) after << 16 | (1L << taken) - 1 << 32;
        stateLows[i] = lows[bin];
      }
    }

    void forget() {
      if (past.length > KEPT) {
        past = new long[0];
      }
    }
  }
}
