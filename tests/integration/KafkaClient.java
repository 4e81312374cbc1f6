// Kafka's own client at the end of a pipe: writes and reads one partition as its standard input says.
// Bytes are in hexadecimal; `-` is null. Used by test_reading_beside_java.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class KafkaClient {
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();
    private static String bootstrap;
    private static TopicPartition place;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        place = new TopicPartition(args[1], 0);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "begin" -> producer(words[1]).beginTransaction();
                case "commit" -> producer(words[1]).commitTransaction();
                case "abort" -> {
                    producer(words[1]).flush(); // else what was not sent yet would never be written
                    producer(words[1]).abortTransaction();
                }
                case "flush" -> producer(words[1]).flush();
                case "send" -> send(words);
                case "read" -> read(words[1], Long.parseLong(words[2]), words[3], words[4]);
                default -> throw new IllegalArgumentException(line);
            }
        }
        PRODUCERS.values().forEach(KafkaProducer::close);
    }

    /** The producer of that name: its codec, and `+` in front if it writes transactions. */
    private static KafkaProducer<byte[], byte[]> producer(String name) {
        return PRODUCERS.computeIfAbsent(name, unknown -> {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("compression.type", name.replace("+", ""));
            settings.put("linger.ms", 10_000); // a batch ends with a flush, or when it is full
            settings.put("batch.size", 65_536);
            if (name.startsWith("+")) {
                settings.put("transactional.id", place.topic() + name);
            }
            var made = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
            if (name.startsWith("+")) {
                made.initTransactions();
            }
            return made;
        });
    }

    private static void send(String[] words) {
        var record = new ProducerRecord<>(place.topic(), 0, bytes(words[2]), bytes(words[3]));
        for (int n = 4; n < words.length; n += 2) {
            record.headers().add(words[n], bytes(words[n + 1]));
        }
        producer(words[1]).send(record);
    }

    private static void read(String isolation, long from, String fetchBytes, String pollRecords) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", isolation,
            "max.partition.fetch.bytes", fetchBytes,
            "max.poll.records", pollRecords,
            "check.crcs", true,
            "fetch.max.wait.ms", 100);
        try (var consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(place));
            consumer.seek(place, from);
            long end = consumer.endOffsets(List.of(place)).get(place);
            StringBuilder found = new StringBuilder();
            while (consumer.position(place) < end) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    append(found, record);
                }
            }
            System.out.print(found.append("end ").append(consumer.position(place)).append('\n'));
            System.out.flush();
        }
    }

    private static void append(StringBuilder found, ConsumerRecord<byte[], byte[]> record) {
        found.append(record.offset()).append(' ').append(record.timestamp());
        found.append(' ').append(text(record.key())).append(' ').append(text(record.value()));
        for (Header header : record.headers()) {
            found.append(' ').append(header.key()).append(' ').append(text(header.value()));
        }
        found.append('\n');
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HEX.parseHex(text.equals("_") ? "" : text);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : bytes.length == 0 ? "_" : HEX.formatHex(bytes);
    }
}
