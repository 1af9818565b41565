import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What a record is in 0.9: a key and a value. */
class Release {
    static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, byte[] key, byte[] value, JsonNode line) {
        return new ProducerRecord<>(topic, partition, key, value);
    }

    static void describe(ConsumerRecord<byte[], byte[]> read, Map<String, Object> line) {
        line.put("timestamp", null);
        line.put("headers", List.of());
    }

    static void seek(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String how, long position) {
        switch (how) {
            case "offset": consumer.seek(partition, position); break;
            case "start": consumer.seekToBeginning(partition); break;
            case "end": consumer.seekToEnd(partition); break;
            default: throw new UnsupportedOperationException("0.9 finds no offset by time");
        }
    }
}
