import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;

/**
 * Message sets of formats 0 and 1 by Apache Kafka's own builder, a line of name and hex each:
 * java -cp 'kafka-4.3.1/lib/*' MakeMessageSets.java. message_sets.txt is what it prints, and behind that what
 * MakeSetsOf08 prints with the jars of 0.8.2.2 and of 0.9.0.1, and MakeSetsOf010 with those of 0.10.2.2.
 */
public class MakeMessageSets {
    public static void main(String[] args) {
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4"}) {
            print("4.3.1/v0/" + codec, codec, 0, TimestampType.CREATE_TIME, 1);
            print("4.3.1/v1/" + codec, codec, 1, TimestampType.CREATE_TIME, 1);
            print("4.3.1/v1/" + codec + "/append-time", codec, 1, TimestampType.LOG_APPEND_TIME, 1);
            print("4.3.1/v0/" + codec + "/gaps", codec, 0, TimestampType.CREATE_TIME, 3);
            print("4.3.1/v1/" + codec + "/gaps", codec, 1, TimestampType.CREATE_TIME, 3);
        }
    }

    /** Records 0 to 11 from offset 1000; only every `step`th is there, as after compaction. */
    static void print(String name, String codec, int magic, TimestampType type, int step) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        Compression compression = Compression.of(CompressionType.forName(codec)).build();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, (byte) magic, compression, type, 1000L,
            type == TimestampType.LOG_APPEND_TIME ? 1_800_000_000_000L : -1L, -1L, (short) -1, -1, false, false, -1,
            buffer.capacity());
        for (int i = 0; i < 12; i += step) {
            byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes();
            byte[] value = i % 7 == 0 ? null : ("value-" + i).repeat(i % 5).getBytes();
            long timestamp = magic == 0 ? -1L : 1_700_000_000_000L + (i % 2 == 0 ? i * 13L : -i);
            builder.appendWithOffset(1000L + i, timestamp, key, value);
        }
        ByteBuffer bytes = builder.build().buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        System.out.println(name + " " + HexFormat.of().formatHex(copy));
    }
}
