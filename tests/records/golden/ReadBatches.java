import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/** Reads each file of batches with Apache Kafka's own reader; prints its records' count and a CRC-32 of all they hold. */
public class ReadBatches {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            CRC32 crc = new CRC32();
            int count = 0;
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(file)))).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    crc.update(ByteBuffer.allocate(16).putLong(record.offset()).putLong(record.timestamp()).array());
                    add(crc, record.hasKey() ? record.key() : null);
                    add(crc, record.hasValue() ? record.value() : null);
                    for (Header header : record.headers()) {
                        add(crc, ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)));
                        add(crc, header.value() == null ? null : ByteBuffer.wrap(header.value()));
                    }
                    count++;
                }
            }
            System.out.println(count + " " + crc.getValue());
        }
    }

    static void add(CRC32 crc, ByteBuffer bytes) {
        crc.update(ByteBuffer.allocate(4).putInt(bytes == null ? -1 : bytes.remaining()).array());
        if (bytes != null) {
            crc.update(bytes);
        }
    }
}
