// franz is franz-go's part in the conformance grid: kgo writes and reads, kadm administers.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/tests/conformance/lines"
)

const patience = 30 * time.Second

// consumer reads one partition, or is a member of a group.
type consumer struct {
	client   *kgo.Client
	lock     sync.Mutex
	assigned map[int32]bool
	shared   *shared // of a share group's consumer
}

var consumers = map[string]*consumer{}

var writer *kgo.Client

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() { lines.Serve(run, code) }

func code(err error) int16 {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code
	}
	return 0
}

func run(c lines.Command) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch c.Do {
	case "produce":
		return nil, produce(ctx, c)
	case "write":
		return nil, write(c)
	case "open":
		return nil, open(ctx, c)
	case "join":
		return nil, join(c)
	case "poll":
		return consumers[c.Consumer].poll(c.Ms)
	case "assignment":
		return consumers[c.Consumer].assignment(), nil
	case "commit":
		return nil, consumers[c.Consumer].client.CommitUncommittedOffsets(ctx)
	case "share":
		return nil, share(c)
	case "take":
		return consumers[c.Consumer].take(c.Ms)
	case "acknowledge":
		return nil, consumers[c.Consumer].acknowledge(c.Position, c.Value)
	case "commit_shared":
		return nil, consumers[c.Consumer].commitShared(ctx)
	case "transactional":
		return nil, transactional(ctx, c)
	case "begin_transaction":
		return nil, producers[c.Producer].BeginTransaction()
	case "send":
		return nil, send(ctx, producers[c.Producer], c)
	case "commit_transaction":
		return nil, producers[c.Producer].EndTransaction(ctx, kgo.TryCommit)
	case "abort_transaction":
		return nil, producers[c.Producer].EndTransaction(ctx, kgo.TryAbort)
	case "close_producer":
		producers[c.Producer].Close()
		delete(producers, c.Producer)
		return nil, nil
	case "transform":
		return transform(ctx, c)
	case "close":
		consumers[c.Consumer].client.Close()
		delete(consumers, c.Consumer)
		return nil, nil
	}
	return administer(ctx, c)
}

func produce(ctx context.Context, c lines.Command) error {
	options, err := seeds(c)
	if err != nil {
		return err
	}
	options = append(options,
		kgo.ProducerBatchCompression(codecs[c.Codec]), kgo.ProducerLinger(20*time.Millisecond),
		kgo.ProducerBatchMaxBytes(10<<20), kgo.BrokerMaxWriteBytes(100<<20), kgo.RequiredAcks(acks(c.Acks)),
	)
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if c.Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	return send(ctx, client, c)
}

func send(ctx context.Context, client *kgo.Client, c lines.Command) error {
	var records []*kgo.Record
	for _, each := range c.Records {
		record := &kgo.Record{Topic: c.Topic, Key: each.Key, Value: each.Value}
		if c.Partition != nil {
			record.Partition = *c.Partition
		}
		if each.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// write writes with one idempotent producer that lives as long as the program.
func write(c lines.Command) error {
	if writer == nil {
		client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Bootstrap, ",")...), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProducerLinger(2*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.RecordDeliveryTimeout(50*time.Second))
		if err != nil {
			return err
		}
		writer = client
	}
	var records []*kgo.Record
	for _, each := range c.Records {
		records = append(records, &kgo.Record{Topic: c.Topic, Partition: each.Partition, Value: each.Value})
	}
	return writer.ProduceSync(context.Background(), records...).FirstErr()
}

func acks(number int) kgo.Acks {
	switch number {
	case 0:
		return kgo.NoAck()
	case 1:
		return kgo.LeaderAck()
	}
	return kgo.AllISRAcks()
}

func open(ctx context.Context, c lines.Command) error {
	at := kgo.NewOffset().At(c.Position)
	switch c.How {
	case "time":
		at = kgo.NewOffset().AfterMilli(c.Position)
	case "end":
		end, err := listOffset(ctx, c.Bootstrap, c.Topic, -1)
		if err != nil {
			return err
		}
		at = kgo.NewOffset().At(end)
	}
	isolation := kgo.ReadUncommitted()
	if c.Isolation == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	options, err := seeds(c)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(options, kgo.FetchMaxWait(100*time.Millisecond), kgo.FetchIsolationLevel(isolation),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: {0: at}}))...)
	consumers[c.Consumer] = &consumer{client: client}
	return err
}

func join(c lines.Command) error {
	member := &consumer{assigned: map[int32]bool{}}
	change := func(held bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			member.change(changed[c.Topic], held)
		}
	}
	balancer := kgo.RangeBalancer()
	if c.Strategy == "cooperative-sticky" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(c.Bootstrap, ",")...), kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.Balancers(balancer),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	}
	if c.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if c.Regex != "" {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+c.Regex+"$"))
	}
	if c.Instance != "" {
		options = append(options, kgo.InstanceID(c.Instance))
	}
	client, err := kgo.NewClient(options...)
	member.client = client
	consumers[c.Consumer] = member
	return err
}

func (c *consumer) change(partitions []int32, held bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, each := range partitions {
		if held {
			c.assigned[each] = true
		} else {
			delete(c.assigned, each)
		}
	}
}

func (c *consumer) assignment() []int32 {
	c.lock.Lock()
	defer c.lock.Unlock()
	held := []int32{}
	for each := range c.assigned {
		held = append(held, each)
	}
	return held
}

func (c *consumer) poll(ms int64) ([]lines.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
	defer cancel()
	read := []lines.Record{}
	fetches := c.client.PollFetches(ctx)
	for _, each := range fetches.Errors() {
		if !errors.Is(each.Err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("partition %d: %w", each.Partition, each.Err)
		}
	}
	for _, record := range fetches.Records() {
		read = append(read, asLine(record))
	}
	return read, nil
}

func asLine(record *kgo.Record) lines.Record {
	timestamp := int64(-1) // as the protocol has it; franz-go has its zero time
	if !record.Timestamp.IsZero() {
		timestamp = record.Timestamp.UnixMilli()
	}
	made := lines.Record{Partition: record.Partition, Offset: record.Offset, Timestamp: &timestamp, Key: record.Key, Value: record.Value}
	for _, header := range record.Headers {
		made.Headers = append(made.Headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	return made
}
