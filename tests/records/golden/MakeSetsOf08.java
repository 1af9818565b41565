import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;

/**
 * Message sets of format 0 by the classes of Kafka 0.8.2.2 or 0.9.0.1, their lz4 with the wrong checksum:
 * java -cp 'lib/*' MakeSetsOf08.java 0.8.2.2
 */
public class MakeSetsOf08 {
    public static void main(String[] version) {
        for (CompressionType type : CompressionType.values()) {
            ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
            MemoryRecords records = MemoryRecords.emptyRecords(buffer, type);
            for (int i = 0; i < 12; i++) {
                byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes();
                byte[] value = i % 7 == 0 ? null : ("value-" + i).repeat(i % 5).getBytes();
                records.append(i, key, value);
            }
            records.close();
            ByteBuffer bytes = records.buffer();
            if (bytes.position() > 0) {
                bytes.flip(); // 0.8 leaves that to the sender
            }
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            System.out.println(version[0] + "/v0/" + type.name + " " + HexFormat.of().formatHex(copy));
        }
    }
}
