package tidelake;

import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/**
 * The bits of a file of pcodec, the lowest of each byte first. Whoever reads on from here has checked that they are
 * there, or asked for them to lie ahead. It does not know what they mean.
 */
public class PcoBits {
  public static final int BATCH = 256;  // numbers of a stream that stand together: their bins, then their further bits
  public static final int KEPT = 1 << 18;  // numbers of a chunk whose memory is kept for the next one
  public static final int APART = 0;  // of differences: numbers that are none
  static final int MAX_LOG = 14;  // of the states of a decoder
  // Bytes that must lie ahead of a batch of a stream: bins and bits of all, and what is read with the last of them.
  static final int AHEAD = BATCH * (MAX_LOG + 64) / 8 + 64;
  static final long[] MASKS = masks();  // so many ones, for 0 to 64
  final int[] spans = new int[BATCH];  // how many further bits numbers of a batch have
  final byte[] tail = new byte[2 * AHEAD];  // the last bytes of a file, and zeros
  byte[] source = null;
  long at = 0;  // in bits
  long end = 0;

  static IllegalArgumentException corrupt(String what) {
    return new IllegalArgumentException("pco: " + what);
  }

  static long[] masks() {
    long[] found = new long[65];
    for (int i = 1; i < 65; i++) {
      found[i] = -1L >>> 64 - i;
    }
    return found;
  }

  /** The next 64 bits. */
  final long word() {
    long place = Platform.BYTE_ARRAY_OFFSET + (at >>> 3);
    int shift = (int) (at & 7);
    return Platform.getLong(source, place) >>> shift | Platform.getLong(source, place + 8) << 1 << 63 - shift;
  }

  final long bits(int count) {
    if (count > end - at) {
      throw corrupt("a file that ends early");
    }
    ahead(16);
    long found = word() & MASKS[count];
    at += count;
    return found;
  }

  final void align() {
    if (bits((int) (-at & 7)) != 0) {
      throw corrupt("bits where there are none");
    }
  }

  /** Makes sure that so many bytes can be read: near the end of an array, of a copy with zeros behind it. */
  final void ahead(int bytes) {
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
}

/**
 * A stream of a chunk: its bins, what its numbers are differences of, and where its decoders stand. It decodes numbers
 * batch by batch, and does not add up those that are differences.
 */
class PcoStream {
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
  final long[] values = new long[PcoBits.BATCH];
  int delta = 0;
  int order = 0;  // how many numbers stand before the first difference
  final long[] convolution = new long[32];
  final long[] moments = new long[32 + PcoBits.BATCH];
  long[] past = new long[0];
  int known = 0;  // of the past
  int given = 0;  // of those

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
    if (past.length > PcoBits.KEPT) {
      past = new long[0];
    }
  }

  /** Reads the bins, and makes the table of the decoders: what each state stands for, and which is next. */
  void read(PcoBits in) {
    int log = (int) in.bits(4);
    int bins = (int) in.bits(15);
    if (log > PcoBits.MAX_LOG || bins > 1 << log || bins < 2 && log > 0) {
      throw PcoBits.corrupt(bins + " bins in 2**" + log + " states");
    }
    reserve(log, bins);
    int spanBits = width == 16 ? 5 : width == 32 ? 6 : 7;
    long middle = delta == PcoBits.APART ? 0 : 1L << width - 1;  // differences are stored as if that were nothing
    int total = 0;
    widest = 0;
    for (int i = 0; i < bins; i++) {
      int weight = 1 + (int) in.bits(log);
      long low = in.bits(width);
      int span = (int) in.bits(spanBits);
      if (span > width) {
        throw PcoBits.corrupt("a bin of 2**" + span + " numbers");
      }
      weights[i] = weight;
      lows[i] = low + middle;
      binSpans[i] = span;
      widest = Math.max(widest, span);
      total += weight;
    }
    if (bins > 0 && total != 1 << log) {
      throw PcoBits.corrupt("bins of " + total + " states of 2**" + log);
    }
    if (bins > 1) {
      spread();
    }
  }

  /** Decodes the next numbers, without what they are differences of. */
  void decode(PcoBits in, long[] into, int start, int count) {
    if (count <= 0) {
      return;
    }
    in.ahead(PcoBits.AHEAD);
    if (bins < 2) {
      Arrays.fill(into, start, start + count, lows[0]);
      if (widest > 0) {
        Arrays.fill(in.spans, 0, count, widest);
      }
    } else if (count == PcoBits.BATCH) {
      batchOfBins(in, into, start);
    } else {
      fewBins(in, into, start, count);
    }
    if (widest > 57) {
      addWide(in, into, start, count);
    } else if (widest > 0) {
      add(in, into, start, count);
    }
    if (in.at > in.end) {
      throw PcoBits.corrupt("numbers that end past the file");
    }
  }

  /**
   * Decodes the bins of a whole batch: 8 bytes hold what all four decoders read in a turn.
   *
   * Tables are read without a check of their bounds: spread sees to it that each state is followed by one of them.
   */
  private void batchOfBins(PcoBits in, long[] into, int start) {
    byte[] from = in.source;
    long[] nodes = this.nodes;
    long[] lows = stateLows;
    int[] further = in.spans;
    long place = Platform.BYTE_ARRAY_OFFSET + (in.at >>> 3);
    int shift = (int) in.at & 7;
    int one = this.one;
    int two = this.two;
    int three = this.three;
    int four = this.four;
    for (int i = 0; i < PcoBits.BATCH; i += 4) {
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
    this.one = one;
    this.two = two;
    this.three = three;
    this.four = four;
    in.at = 8 * (place - Platform.BYTE_ARRAY_OFFSET) + shift;
  }

  /** Decodes the bins of the last batch of a page. */
  private void fewBins(PcoBits in, long[] into, int start, int count) {
    for (int i = 0; i < count; i++) {
      int word = (int) (Platform.getLong(in.source, Platform.BYTE_ARRAY_OFFSET + (in.at >>> 3)) >>> (int) (in.at & 7));
      long node = nodes[one];
      into[start + i] = stateLows[one];
      in.spans[i] = (int) node >>> 8 & 255;
      int next = ((int) node >>> 16) + (word & (int) (node >>> 32));
      one = two;
      two = three;
      three = four;
      four = next;
      in.at += (int) node & 255;
    }
  }

  /** Adds to the low ends of bins the further bits of numbers, of which none has more than 57. */
  private static void add(PcoBits in, long[] into, int start, int count) {
    byte[] from = in.source;
    int[] further = in.spans;
    long[] masks = PcoBits.MASKS;
    long bit = in.at;
    for (int i = 0; i < count; i++) {
      int span = further[i];
      long word = Platform.getLong(from, Platform.BYTE_ARRAY_OFFSET + (bit >>> 3)) >>> (int) (bit & 7);
      into[start + i] += word & masks[span];
      bit += span;
    }
    in.at = bit;
  }

  private static void addWide(PcoBits in, long[] into, int start, int count) {
    for (int i = 0; i < count; i++) {
      into[start + i] += in.word() & PcoBits.MASKS[in.spans[i]];
      in.at += in.spans[i];
    }
  }
}
