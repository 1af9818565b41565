import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

/** Message sets of formats 0 and 1 by the classes of Kafka 0.10.2.2: java -cp 'lib/*' MakeSetsOf010.java 0.10.2.2 */
public class MakeSetsOf010 {
    public static void main(String[] version) {
        for (byte magic = 0; magic < 2; magic++) {
            for (CompressionType codec : CompressionType.values()) {
                MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), magic, codec,
                    TimestampType.CREATE_TIME, 1000L);
                for (int i = 0; i < 12; i++) {
                    byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes();
                    byte[] value = i % 7 == 0 ? null : ("value-" + i).repeat(i % 5).getBytes();
                    long timestamp = magic == 0 ? -1L : 1_700_000_000_000L + (i % 2 == 0 ? i * 13L : -i);
                    builder.appendWithOffset(1000L + i, timestamp, key, value);
                }
                ByteBuffer bytes = builder.build().buffer();
                byte[] copy = new byte[bytes.remaining()];
                bytes.get(copy);
                System.out.println(version[0] + "/v" + magic + "/" + codec.name + " " + HexFormat.of().formatHex(copy));
            }
        }
    }
}
