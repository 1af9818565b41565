package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/tests/conformance/lines"
)

var producers = map[string]*kgo.Client{}

func transactional(ctx context.Context, c lines.Command) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap), kgo.TransactionalID(c.Name),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	producers[c.Producer] = client
	_, _, err = client.ProducerID(ctx) // which fences earlier producers
	return err
}

// transform reads records in a group, and writes them to another topic with the group's offsets in one transaction.
func transform(ctx context.Context, c lines.Command) (any, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap), kgo.TransactionalID(c.Name), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
	}
	if c.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err = session.Begin(); err != nil {
		return nil, err
	}
	read := []lines.Record{}
	for len(read) < int(c.Position) {
		fetches := session.PollFetches(ctx)
		if err = fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			read = append(read, asLine(record))
			made := &kgo.Record{Topic: c.Target, Key: record.Key, Value: record.Value, Headers: record.Headers}
			session.Produce(ctx, made, nil)
		}
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(c.Commit))
	if err == nil && committed != c.Commit {
		err = fmt.Errorf("committed: %v, wanted: %v", committed, c.Commit)
	}
	return read, err
}
