package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/tests/conformance/lines"
)

// shared is what a consumer of a share group has of its own.
type shared struct {
	polled map[int64]*kgo.Record
	lock   sync.Mutex
	errors []error // of acknowledgements, since the last commit
}

var statuses = map[string]kgo.AckStatus{"ACCEPT": kgo.AckAccept, "RELEASE": kgo.AckRelease, "REJECT": kgo.AckReject}

func share(c lines.Command) error {
	own := &shared{}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Bootstrap, ",")...), kgo.ShareGroup(c.Group),
		kgo.ConsumeTopics(c.Topic), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			own.lock.Lock()
			defer own.lock.Unlock()
			own.errors = append(own.errors, results.Error())
		}))
	consumers[c.Consumer] = &consumer{client: client, shared: own}
	return err
}

func (c *consumer) take(ms int64) ([]lines.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
	defer cancel()
	fetches := c.client.PollFetches(ctx)
	for _, each := range fetches.Errors() {
		if !errors.Is(each.Err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("partition %d: %w", each.Partition, each.Err)
		}
	}
	read := []lines.Record{}
	c.shared.polled = map[int64]*kgo.Record{}
	for _, record := range fetches.Records() {
		c.shared.polled[record.Offset] = record
		line := asLine(record)
		line.Deliveries = record.DeliveryCount()
		read = append(read, line)
	}
	return read, nil
}

func (c *consumer) acknowledge(offset int64, status string) error {
	record, known := c.shared.polled[offset]
	if !known {
		return fmt.Errorf("offset %d was not in the last poll", offset)
	}
	record.Ack(statuses[status])
	return nil
}

// commitShared accepts what the last poll got and was not acknowledged, and waits for the answers to all acknowledgements.
func (c *consumer) commitShared(ctx context.Context) error {
	c.client.MarkAcks(kgo.AckAccept)
	if err := c.client.FlushAcks(ctx); err != nil {
		return err
	}
	c.shared.lock.Lock()
	defer c.shared.lock.Unlock()
	found := errors.Join(c.shared.errors...)
	c.shared.errors = nil
	return found
}
