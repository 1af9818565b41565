package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/tests/conformance/lines"
)

func administer(ctx context.Context, c lines.Command) (any, error) {
	options, err := seeds(c)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	switch c.Do {
	case "create_topic":
		return nil, second(admin.CreateTopic(ctx, c.Partitions, 1, nil, c.Topic))
	case "delete_topic":
		return nil, second(admin.DeleteTopic(ctx, c.Topic))
	case "add_partitions":
		answers, err := admin.UpdatePartitions(ctx, int(c.Partitions), c.Topic)
		return nil, first(err, answers[c.Topic].Err)
	case "list_offset":
		return listOffset(ctx, c.Bootstrap, c.Topic, c.Position)
	case "delete_records":
		before := kadm.Offsets{}
		before.AddOffset(c.Topic, 0, c.Position, -1)
		answers, err := admin.DeleteRecords(ctx, before)
		return nil, first(err, answers[c.Topic][0].Err)
	case "topic_settings":
		return settings(ctx, admin, c.Topic)
	case "set_topic_setting":
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: c.Name, Value: &c.Value}
		answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, c.Topic)
		if err != nil {
			return nil, err
		}
		return nil, answers[0].Err
	case "groups":
		listed, err := admin.ListGroups(ctx)
		return listed.Groups(), err
	case "group_state":
		described, err := admin.DescribeGroups(ctx, c.Group)
		group := described[c.Group]
		return lines.GroupState{State: group.State, Members: len(group.Members)}, first(err, group.Err)
	case "delete_group":
		return nil, second(admin.DeleteGroup(ctx, c.Group))
	}
	return nil, fmt.Errorf("no command %q", c.Do)
}

func settings(ctx context.Context, admin *kadm.Client, topic string) (map[string]string, error) {
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, each := range described[0].Configs {
		found[each.Key] = each.MaybeValue()
	}
	return found, described[0].Err
}

func listOffset(ctx context.Context, bootstrap, topic string, when int64) (int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	var listed kadm.ListedOffsets
	switch when {
	case -1:
		listed, err = admin.ListEndOffsets(ctx, topic)
	case -2:
		listed, err = admin.ListStartOffsets(ctx, topic)
	default:
		listed, err = admin.ListOffsetsAfterMilli(ctx, when, topic)
	}
	found := listed[topic][0]
	return found.Offset, first(err, found.Err)
}

func first(errs ...error) error {
	for _, each := range errs {
		if each != nil {
			return each
		}
	}
	return nil
}

func second[T any](_ T, err error) error { return err }
