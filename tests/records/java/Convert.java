import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * Apache Kafka's own conversions, a line at a time:  down|up  magic  first_offset  records in hex  ->  records in hex,
 * or "! " and the exception. "up" is what a broker does to a produced set whose topic stores format 2.
 */
public class Convert {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            byte magic = Byte.parseByte(words[1]);
            long offset = Long.parseLong(words[2]);
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(words[3])));
            try {
                out.append(hex(words[0].equals("down") ? down(records, magic, offset) : up(records, magic, offset)));
            } catch (RuntimeException e) {
                out.append("! ").append(e.getClass().getSimpleName()).append(' ').append(e.getMessage());
            }
            out.append('\n');
        }
        System.out.print(out);
    }

    static MemoryRecords down(MemoryRecords records, byte magic, long firstOffset) {
        return (MemoryRecords) records.downConvert(magic, firstOffset, Time.SYSTEM).records();
    }

    static MemoryRecords up(MemoryRecords records, byte magic, long offset) {
        CompressionType type = CompressionType.NONE;
        for (RecordBatch batch : records.batches())
            type = batch.compressionType();
        LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), Time.SYSTEM, type,
            Compression.of(type).build(), false, magic, TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, -1,
            AppendOrigin.CLIENT, MetadataVersion.latestProduction());
        return validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(offset), new Silent(),
            BufferSupplier.create()).validatedRecords;
    }

    static String hex(MemoryRecords records) {
        ByteBuffer bytes = records.buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }

    static class Silent implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }
}
