import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * The word count of Kafka Streams with exactly-once: BOOTSTRAP INPUT OUTPUT STATE-DIRECTORY GROUP-PROTOCOL GUARANTEE
 * SESSION-TIMEOUT-MS; runs until killed. It compiles against every release from 2.8 on.
 */
public class WordCount {
    public static void main(String[] arguments) {
        var settings = new Properties();
        settings.put("application.id", "count-" + arguments[1]);
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[3]);
        settings.put("processing.guarantee", arguments[5]);
        settings.put("commit.interval.ms", 100);
        settings.put("statestore.cache.max.bytes", 0); // each word in, one count out
        settings.put("cache.max.bytes.buffering", 0); // its name before 3.4
        settings.put("group.protocol", arguments[4]);
        if (arguments[4].equals("classic")) { // in a group of the streams protocol these are the broker's settings
            settings.put("consumer.session.timeout.ms", arguments[6]); // a killed process leaves its group after this time
            settings.put("consumer.heartbeat.interval.ms", 300);
        }
        settings.put("consumer.max.poll.records", 20);
        settings.put("transaction.timeout.ms", 5_000);
        settings.put("auto.offset.reset", "earliest");
        var text = Serdes.String();
        var builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(text, text))
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(text, text))
            .count()
            .toStream()
            .mapValues(Object::toString)
            .to(arguments[2], Produced.with(text, text));
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(problem -> {
            problem.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
        streams.start();
    }
}
