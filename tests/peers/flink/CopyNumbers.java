import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies the records of a topic into another one, exactly once, until it is killed:
 * BOOTSTRAP SOURCE TARGET DIRECTORY NAMING-STRATEGY PARALLELISM. It continues the last checkpoint in DIRECTORY.
 */
public class CopyNumbers {
    public static void main(String[] arguments) throws Exception {
        var bootstrap = arguments[0];
        var checkpoints = Path.of(arguments[3]);
        var settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "800 ms");
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "none"); // a failure is the test's to see
        settings.setString("rest.bind-address", "127.0.0.1");
        settings.setString("taskmanager.memory.network.min", "8 mb");
        settings.setString("taskmanager.memory.network.max", "8 mb");
        settings.setString("taskmanager.memory.managed.size", "8 mb");
        newest(checkpoints).ifPresent(path -> settings.setString("execution.state-recovery.path", path.toString()));
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(arguments[1])
            .setGroupId("flink-" + arguments[1])
            .setProperty("isolation.level", "read_committed")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("copy-" + arguments[2])
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[4]))
            .setProperty("transaction.timeout.ms", "600000") // Flink's default, an hour, is longer than brokers allow
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic(arguments[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        var environment = StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[5]), settings);
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "numbers")
            .map(number -> {
                Thread.sleep(100); // so that it is between two checkpoints, or behind one and before its commit
                return number;
            })
            .sinkTo(sink);
        environment.execute();
    }

    /** The last complete checkpoint, which an earlier run left. */
    private static Optional<Path> newest(Path checkpoints) throws IOException {
        if (!Files.exists(checkpoints)) {
            return Optional.empty();
        }
        try (var files = Files.walk(checkpoints, 3)) {
            return files.filter(path -> path.endsWith("_metadata"))
                .map(Path::getParent)
                .max(Comparator.comparingInt(path -> Integer.parseInt(path.getFileName().toString().substring(4))));
        }
    }
}
