package main

import (
	"github.com/IBM/sarama"

	"headrace/tests/conformance/lines"
)

// commitOffset commits without being a member, as programs did before there were groups.
func commitOffset(c lines.Command) error {
	return withOffsets(c, func(partition sarama.PartitionOffsetManager, manager sarama.OffsetManager) {
		partition.MarkOffset(c.Position, c.Name)
		manager.Commit()
	})
}

func committedOffset(c lines.Command) (any, error) {
	var offset int64
	var metadata string
	err := withOffsets(c, func(partition sarama.PartitionOffsetManager, _ sarama.OffsetManager) {
		offset, metadata = partition.NextOffset()
	})
	return []any{offset, metadata}, err
}

func withOffsets(c lines.Command, use func(sarama.PartitionOffsetManager, sarama.OffsetManager)) error {
	config := settings(c)
	config.Consumer.Return.Errors = true
	client, err := sarama.NewClient([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	manager, err := sarama.NewOffsetManagerFromClient(c.Group, client)
	if err != nil {
		return err
	}
	partition, err := manager.ManagePartition(c.Topic, 0)
	if err != nil {
		manager.Close()
		return err
	}
	use(partition, manager)
	partition.AsyncClose()
	if closing := manager.Close(); closing != nil {
		return closing
	}
	for problem := range partition.Errors() {
		err = problem
	}
	return err
}
