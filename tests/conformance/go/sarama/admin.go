package main

import (
	"fmt"

	"github.com/IBM/sarama"

	"headrace/tests/conformance/lines"
)

func administer(c lines.Command) (any, error) {
	admin, err := sarama.NewClusterAdmin([]string{c.Bootstrap}, settings(c))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	switch c.Do {
	case "create_topic":
		return nil, admin.CreateTopic(c.Topic, &sarama.TopicDetail{NumPartitions: c.Partitions, ReplicationFactor: 1}, false)
	case "delete_topic":
		return nil, admin.DeleteTopic(c.Topic)
	case "add_partitions":
		return nil, admin.CreatePartitions(c.Topic, c.Partitions, nil, false)
	case "delete_records":
		return nil, admin.DeleteRecords(c.Topic, map[int32]int64{0: c.Position})
	case "topic_settings":
		return describeTopic(admin, c.Topic)
	case "set_topic_setting":
		change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &c.Value}
		changes := map[string]sarama.IncrementalAlterConfigsEntry{c.Name: change}
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, changes, false)
	case "groups":
		return listGroups(admin)
	case "group_state":
		return describeGroup(admin, c.Group)
	case "delete_group":
		return nil, admin.DeleteConsumerGroup(c.Group)
	}
	return nil, fmt.Errorf("no command %q", c.Do)
}

func describeTopic(admin sarama.ClusterAdmin, topic string) (map[string]string, error) {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	found := map[string]string{}
	for _, each := range entries {
		found[each.Name] = each.Value
	}
	return found, err
}

func listGroups(admin sarama.ClusterAdmin) ([]string, error) {
	listed, err := admin.ListConsumerGroups()
	names := []string{}
	for name := range listed {
		names = append(names, name)
	}
	return names, err
}

func describeGroup(admin sarama.ClusterAdmin, group string) (lines.GroupState, error) {
	described, err := admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return lines.GroupState{}, err
	}
	found := lines.GroupState{State: described[0].State, Members: len(described[0].Members)}
	if described[0].Err != sarama.ErrNoError {
		return found, described[0].Err
	}
	return found, nil
}
