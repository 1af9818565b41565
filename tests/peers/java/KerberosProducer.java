import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Writes one record, by Kerberos as the JAAS file of the JVM says; prints its offset. With clients from 0.9 on. */
public class KerberosProducer {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.kerberos.service.name", "kafka");
        settings.put("acks", "all");
        for (String side : new String[] {"key", "value"})
            settings.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            ProducerRecord<String, String> record = new ProducerRecord<>(arguments[1], 0, "key", "value");
            System.out.println("offset " + producer.send(record).get(30, TimeUnit.SECONDS).offset());
        }
    }
}
