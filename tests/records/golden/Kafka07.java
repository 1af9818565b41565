import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import kafka.javaapi.message.ByteBufferMessageSet;
import kafka.log.Log;
import kafka.message.CompressionCodec;
import kafka.message.GZIPCompressionCodec$;
import kafka.message.Message;
import kafka.message.MessageAndOffset;
import kafka.message.NoCompressionCodec$;
import kafka.message.SnappyCompressionCodec$;
import kafka.utils.SystemTime$;

/**
 * Kafka 0.7's own classes, which run on Java 17:  write DIR  makes the log that log_07.json holds;  read DIR  opens a
 * log, ours for instance, and prints each message as "payload in hex, offset behind it". Needs kafka-0.7.0.jar and
 * zkclient-0.1.jar, which the sources of Kafka 0.8.0 carry below system_test, scala-library 2.8.0, log4j 1.2.17 and
 * snappy-java 1.0.4.1, and --add-opens java.base/java.lang=ALL-UNNAMED.
 */
public class Kafka07 {
    static final CompressionCodec NONE = NoCompressionCodec$.MODULE$;
    static final CompressionCodec GZIP = GZIPCompressionCodec$.MODULE$;
    static final CompressionCodec SNAPPY = SnappyCompressionCodec$.MODULE$;

    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[1]);
        Log log = new Log(directory, SystemTime$.MODULE$, 200L, 1 << 20, 1, Long.MAX_VALUE, true);
        if (arguments[0].equals("write"))
            write(log);
        else
            read(directory);
        log.close();
    }

    static void write(Log log) {
        for (int i = 0; i < 10; i++)
            log.append(set(NONE, "value " + i, "").underlying());
        log.append(set(GZIP, "zipped 0", "zipped 1", "zipped 2").underlying());
        log.append(set(SNAPPY, "snappy 0", "snappy 1").underlying());
        List<Message> nested = Arrays.asList(wrapped("deep 0", "deep 1"), new Message("shallow".getBytes()));
        log.append(new ByteBufferMessageSet(GZIP, nested).underlying());
        ByteBuffer old = ByteBuffer.wrap(HexFormat.of().parseHex("001d775834" + "76616c7565"));
        log.append(new ByteBufferMessageSet(NONE, Arrays.asList(new Message(old))).underlying());
        log.flush();
    }

    /** One compressed message that holds others. */
    static Message wrapped(String... values) {
        ByteBuffer set = set(GZIP, values).getBuffer().duplicate();
        set.position(4);
        return new Message(set.slice());
    }

    static ByteBufferMessageSet set(CompressionCodec codec, String... values) {
        List<Message> messages = new ArrayList<>();
        for (String value : values)
            messages.add(new Message(value.getBytes()));
        return new ByteBufferMessageSet(codec, messages);
    }

    static void read(File directory) throws Exception {
        File[] files = directory.listFiles();
        Arrays.sort(files);
        for (File file : files) {
            long start = Long.parseLong(file.getName().substring(0, file.getName().indexOf('.')));
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
            Iterator<MessageAndOffset> each = new ByteBufferMessageSet(bytes, start, 0).iterator();
            while (each.hasNext()) {
                MessageAndOffset one = each.next();
                ByteBuffer payload = one.message().payload();
                byte[] copy = new byte[payload.remaining()];
                payload.get(copy);
                System.out.println(HexFormat.of().formatHex(copy) + " " + one.offset());
            }
        }
    }
}
