import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Utils;

/** Writes batches.json with Apache Kafka's own builder: java -cp 'kafka-3.9.2/lib/*' MakeBatches.java > batches.json */
public class MakeBatches {
    public static void main(String[] args) {
        StringBuilder out = new StringBuilder("{\n");
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            out.append("  \"").append(codec).append("\": \"").append(batch(codec)).append("\",\n");
        }
        out.append("  \"commit\": \"").append(marker(ControlRecordType.COMMIT)).append("\",\n");
        out.append("  \"abort\": \"").append(marker(ControlRecordType.ABORT)).append("\",\n  \"murmur2\": {");
        String separator = "";
        for (String key : new String[] {"", "a", "ab", "abc", "abcd", "kafka", "B6", "100000001", "a-little-bit-long-string",
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", "Grüße"}) {
            int hash = Utils.murmur2(key.getBytes(StandardCharsets.UTF_8));
            out.append(separator).append('"').append(key).append("\": ").append(hash);
            separator = ", ";
        }
        System.out.println(out.append("}\n}"));
    }

    static String batch(String codec) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        Compression compression = Compression.of(CompressionType.forName(codec)).build();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, RecordBatch.MAGIC_VALUE_V2, compression,
            TimestampType.CREATE_TIME, 1000L, -1L, 42L, (short) 3, 7, false, false, 5, buffer.capacity());
        for (int i = 0; i < 300; i++) {
            byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes();
            byte[] value = i % 7 == 0 ? null : ("value-" + i % 50).repeat(i % 5).getBytes();
            Header[] headers = new Header[i % 4 == 0 ? i % 3 : 0];
            for (int h = 0; h < headers.length; h++) {
                headers[h] = new RecordHeader("name-" + h, h == 1 ? null : ("header-" + i).getBytes());
            }
            builder.append(1_700_000_000_000L + (i % 2 == 0 ? i * 13L : -i), key, value, headers);
        }
        return hex(builder.build());
    }

    static String marker(ControlRecordType type) {
        return hex(MemoryRecords.withEndTransactionMarker(77L, 1_700_000_000_000L, 4, 42L, (short) 3,
            new EndTransactionMarker(type, 9)));
    }

    static String hex(MemoryRecords records) {
        ByteBuffer bytes = records.buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }
}
