import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.producer.ProducerRecord;

/** What a record is in 0.8.2: a key and a value. */
class Release {
    static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, byte[] key, byte[] value, JsonNode line) {
        return new ProducerRecord<>(topic, partition, key, value);
    }
}
