import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What a record is from 0.10 on: a key, a value and a time. */
class Release {
    static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, byte[] key, byte[] value, JsonNode line) {
        return new ProducerRecord<>(topic, partition, line.get("timestamp").isNull() ? null : line.get("timestamp").asLong(), key, value);
    }

    static void describe(ConsumerRecord<byte[], byte[]> read, Map<String, Object> line) {
        line.put("timestamp", read.timestamp());
        line.put("headers", List.of());
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
