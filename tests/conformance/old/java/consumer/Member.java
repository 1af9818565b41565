import java.util.*;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A member of a group with a thread of its own, as before 2.0 poll() waits for the other members however long it takes. */
class Member implements Runnable {
    final KafkaConsumer<byte[], byte[]> consumer;
    final LinkedBlockingQueue<List<Map<String, Object>>> arrived = new LinkedBlockingQueue<>();
    final ReentrantLock turn = new ReentrantLock(true);
    final Thread thread = new Thread(this);
    volatile boolean closing;
    volatile RuntimeException problem;

    Member(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        this.consumer = consumer;
        consumer.subscribe(List.of(topic));
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void run() {
        try {
            while (!closing) {
                turn.lock();
                try {
                    List<Map<String, Object>> records = Reading.poll(consumer, 50);
                    if (!records.isEmpty()) {
                        arrived.add(records);
                    }
                } finally {
                    turn.unlock();
                }
            }
        } catch (RuntimeException why) {
            problem = why;
        }
    }

    List<Map<String, Object>> poll(long patience) throws InterruptedException {
        if (problem != null) {
            throw problem;
        }
        List<Map<String, Object>> records = arrived.poll(patience, TimeUnit.MILLISECONDS);
        return records == null ? List.of() : records;
    }

    List<Integer> assignment() {
        turn.lock();
        try {
            return consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toList());
        } finally {
            turn.unlock();
        }
    }

    void commit() {
        turn.lock();
        try {
            consumer.commitSync();
        } finally {
            turn.unlock();
        }
    }

    void close() throws InterruptedException {
        closing = true;
        thread.join();
        consumer.close();
    }
}
