import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A share group takes the records of a topic: BOOTSTRAP TOPIC GROUP CONSUMERS WARMUP COUNT. Each consumer has a thread,
 * and acknowledges with its next poll. Prints "warm" after WARMUP records, and then the rate of the next COUNT.
 */
public class ShareGroup {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        int consumers = Integer.parseInt(arguments[3]);
        long warmUp = Long.parseLong(arguments[4]), count = Long.parseLong(arguments[5]);
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            var earliest = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
        }
        var taken = new AtomicLong();
        var warm = new CountDownLatch(1);
        var done = new CountDownLatch(1);
        var threads = new ArrayList<Thread>();
        for (int n = 0; n < consumers; n++) {
            var thread = new Thread(() -> {
                Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", group);
                var bytes = new ByteArrayDeserializer();
                try (var consumer = new KafkaShareConsumer<>(settings, bytes, bytes)) {
                    consumer.subscribe(List.of(topic));
                    while (done.getCount() > 0) {
                        long total = taken.addAndGet(consumer.poll(Duration.ofMillis(200)).count());
                        if (total >= warmUp) {
                            warm.countDown();
                        }
                        if (total >= warmUp + count) {
                            done.countDown();
                        }
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        warm.await();
        System.out.println("warm");
        long first = taken.get(), began = System.nanoTime();
        done.await();
        System.out.printf("%.0f%n", (taken.get() - first) / ((System.nanoTime() - began) / 1e9));
        for (var thread : threads) {
            thread.join();
        }
    }
}
