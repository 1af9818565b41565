package main

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"headrace/tests/conformance/lines"
)

// drain waits for a first message and takes all that are there.
func drain(messages <-chan *sarama.ConsumerMessage, patience time.Duration) []lines.Record {
	read := []lines.Record{}
	deadline := time.After(patience)
	for {
		select {
		case message, open := <-messages:
			if !open {
				return read
			}
			read = append(read, asLine(message))
			if len(messages) == 0 {
				return read
			}
		case <-deadline:
			return read
		}
	}
}

// assigned reads one partition.
type assigned struct {
	consumer  sarama.Consumer
	partition sarama.PartitionConsumer
}

func open(c lines.Command) error {
	at := c.Position
	if c.How != "offset" {
		if c.How == "end" {
			c.Position = sarama.OffsetNewest
		}
		found, err := listOffset(c)
		if err != nil {
			return err
		}
		at = found
	}
	config := settings(c)
	if c.Isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	partition, err := consumer.ConsumePartition(c.Topic, 0, at)
	consumers[c.Consumer] = &assigned{consumer, partition}
	return err
}

func (a *assigned) poll(patience time.Duration) []lines.Record {
	return drain(a.partition.Messages(), patience)
}

func (a *assigned) assignment() []int32 { return []int32{0} }

func (a *assigned) commit() error { return nil }

func (a *assigned) close() error {
	if err := a.partition.Close(); err != nil {
		return err
	}
	return a.consumer.Close()
}

// member shares a topic with its group; sarama calls Setup, ConsumeClaim and Cleanup in every generation.
type member struct {
	group    sarama.ConsumerGroup
	messages chan *sarama.ConsumerMessage
	stop     context.CancelFunc
	stopped  chan struct{}
	lock     sync.Mutex
	held     []int32
	session  sarama.ConsumerGroupSession
	last     map[int32]lines.Record
	topic    string
}

func join(c lines.Command) error {
	config := settings(c)
	config.Consumer.Group.InstanceId = c.Instance
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	group, err := sarama.NewConsumerGroup([]string{c.Bootstrap}, c.Group, config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	made := &member{
		group: group, messages: make(chan *sarama.ConsumerMessage, 10_000), stop: stop, stopped: make(chan struct{}),
		last: map[int32]lines.Record{}, topic: c.Topic,
	}
	consumers[c.Consumer] = made
	go func() {
		defer close(made.stopped)
		for ctx.Err() == nil {
			if made.group.Consume(ctx, []string{c.Topic}, made) != nil {
				time.Sleep(50 * time.Millisecond)
			}
		}
	}()
	return nil
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session, m.held = session, session.Claims()[m.topic]
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session, m.held = nil, nil
	return nil
}

func (m *member) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.messages <- message
	}
	return nil
}

func (m *member) poll(patience time.Duration) []lines.Record {
	read := drain(m.messages, patience)
	for _, each := range read {
		m.last[each.Partition] = each
	}
	return read
}

func (m *member) assignment() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return append([]int32{}, m.held...)
}

func (m *member) commit() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.session == nil {
		return nil
	}
	for partition, record := range m.last {
		m.session.MarkOffset(m.topic, partition, record.Offset+1, "")
	}
	m.session.Commit()
	return nil
}

func (m *member) close() error {
	m.stop()
	<-m.stopped
	return m.group.Close()
}
