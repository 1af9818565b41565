package main

import (
	"github.com/IBM/sarama"

	"headrace/tests/conformance/lines"
)

var producers = map[string]sarama.SyncProducer{}

func transactional(c lines.Command) error {
	config := settings(c)
	config.Producer.Transaction.ID = c.Name
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err == nil {
		producers[c.Producer] = producer
	}
	return err
}

func sendOffsets(c lines.Command) error {
	var positions []*sarama.PartitionOffsetMetadata
	for partition, record := range consumers[c.Consumer].(*member).last {
		positions = append(positions, &sarama.PartitionOffsetMetadata{Partition: partition, Offset: record.Offset + 1, LeaderEpoch: -1})
	}
	return producers[c.Producer].AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{c.Topic: positions}, c.Group)
}
