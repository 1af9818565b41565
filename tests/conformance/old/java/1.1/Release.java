import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** What a record is from 0.11 on: a key, a value, a time and headers. */
class Release {
    static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, byte[] key, byte[] value, JsonNode line) {
        List<Header> headers = new ArrayList<>();
        line.get("headers").forEach(each -> headers.add(new RecordHeader(each.get("name").asText(), Old.bytes(each.get("value")))));
        return new ProducerRecord<>(topic, partition, line.get("timestamp").isNull() ? null : line.get("timestamp").asLong(), key, value, headers);
    }

    static void describe(ConsumerRecord<byte[], byte[]> read, Map<String, Object> line) {
        List<Map<String, Object>> headers = new ArrayList<>();
        for (Header each : read.headers()) {
            Map<String, Object> header = new HashMap<>(); // Map.of takes no null
            header.put("name", each.key());
            header.put("value", each.value());
            headers.add(header);
        }
        line.put("timestamp", read.timestamp());
        line.put("headers", headers);
    }

    static void seek(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String how, long position) {
        switch (how) {
            case "offset": consumer.seek(partition, position); break;
            case "start": consumer.seekToBeginning(List.of(partition)); break;
            case "end": consumer.seekToEnd(List.of(partition)); break;
            default: consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, position)).get(partition).offset());
        }
    }
}
