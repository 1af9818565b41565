// sarama is sarama's part in the conformance grid.
package main

import (
	"errors"
	"time"

	"github.com/IBM/sarama"

	"headrace/tests/conformance/lines"
)

// reader is what polls records: a partition's consumer, or a member of a group.
type reader interface {
	poll(patience time.Duration) []lines.Record
	assignment() []int32
	commit() error
	close() error
}

var consumers = map[string]reader{}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func main() { lines.Serve(run, code) }

func code(err error) int16 {
	var number sarama.KError
	if errors.As(err, &number) {
		return int16(number)
	}
	return 0
}

func run(c lines.Command) (any, error) {
	switch c.Do {
	case "produce":
		return nil, produce(c)
	case "open":
		return nil, open(c)
	case "join":
		return nil, join(c)
	case "poll":
		return consumers[c.Consumer].poll(time.Duration(c.Ms) * time.Millisecond), nil
	case "assignment":
		return consumers[c.Consumer].assignment(), nil
	case "commit":
		return nil, consumers[c.Consumer].commit()
	case "transactional":
		return nil, transactional(c)
	case "begin_transaction":
		return nil, producers[c.Producer].BeginTxn()
	case "send":
		return nil, send(producers[c.Producer], c)
	case "send_offsets":
		return nil, sendOffsets(c)
	case "commit_transaction":
		return nil, producers[c.Producer].CommitTxn()
	case "abort_transaction":
		return nil, producers[c.Producer].AbortTxn()
	case "close_producer":
		err := producers[c.Producer].Close()
		delete(producers, c.Producer)
		return nil, err
	case "close":
		err := consumers[c.Consumer].close()
		delete(consumers, c.Consumer)
		return nil, err
	case "list_offset":
		return listOffset(c)
	case "commit_offset":
		return nil, commitOffset(c)
	case "committed_offset":
		return committedOffset(c)
	}
	return administer(c)
}

// settings of a client that believes the broker to be of a version; of its newest where the command names none.
func settings(c lines.Command) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	if version, err := sarama.ParseKafkaVersion(c.Version); err == nil {
		config.Version = version
	}
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	secure(config, c.Secure)
	return config
}

func produce(c lines.Command) error {
	config := settings(c)
	config.Producer.Return.Successes = true
	config.Producer.Compression = codecs[c.Codec]
	config.Producer.RequiredAcks = sarama.RequiredAcks(c.Acks)
	config.Producer.MaxMessageBytes = 10 << 20
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Producer.Partitioner = sarama.NewManualPartitioner
	if c.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return send(producer, c)
}

func send(producer sarama.SyncProducer, c lines.Command) error {
	var messages []*sarama.ProducerMessage
	for _, each := range c.Records {
		messages = append(messages, message(c, each))
	}
	err := producer.SendMessages(messages)
	var several sarama.ProducerErrors
	if errors.As(err, &several) {
		return several[0].Err
	}
	return err
}

func message(c lines.Command, record lines.Record) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{Topic: c.Topic, Partition: *c.Partition}
	if record.Key != nil {
		made.Key = sarama.ByteEncoder(record.Key)
	}
	if record.Value != nil {
		made.Value = sarama.ByteEncoder(record.Value)
	}
	if record.Timestamp != nil {
		made.Timestamp = time.UnixMilli(*record.Timestamp)
	}
	for _, header := range record.Headers {
		made.Headers = append(made.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
	}
	return made
}

func listOffset(c lines.Command) (int64, error) {
	client, err := sarama.NewClient([]string{c.Bootstrap}, settings(c))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return client.GetOffset(c.Topic, 0, c.Position) // sarama's names for the ends are the protocol's numbers
}

func asLine(message *sarama.ConsumerMessage) lines.Record {
	timestamp := int64(-1) // as the protocol has it; sarama has its zero time
	if !message.Timestamp.IsZero() {
		timestamp = message.Timestamp.UnixMilli()
	}
	made := lines.Record{Partition: message.Partition, Offset: message.Offset, Timestamp: &timestamp, Key: message.Key, Value: message.Value}
	for _, header := range message.Headers {
		made.Headers = append(made.Headers, lines.Header{Name: string(header.Key), Value: header.Value})
	}
	return made
}
