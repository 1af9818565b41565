// franz produces to a topic, or consumes it, as fast as it may, until it is ended.
package main

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

const recordBytes = 1024

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: franz produce|consume BOOTSTRAP TOPIC")
	}
	work, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...)}
	if work == "produce" {
		options = append(options, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProducerBatchCompression(kgo.NoCompression()))
	} else {
		options = append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for ctx := context.Background(); ; {
		if work == "produce" {
			client.Produce(ctx, &kgo.Record{Value: make([]byte, recordBytes)}, nil)
		} else {
			client.PollFetches(ctx)
		}
	}
}
