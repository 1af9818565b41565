// franz sends records one at a time, each when the one before is acknowledged, and prints the latencies.
//
//	franz BOOTSTRAP TOPIC BYTES SECONDS  ->  count p50 p99 p999, in milliseconds
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	size, err := strconv.Atoi(os.Args[3])
	must(err)
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	must(err)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.DefaultProduceTopic(os.Args[2]), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0),
	)
	must(err)
	defer client.Close()
	value := make([]byte, size)
	var latencies []float64
	for end := time.Now().Add(time.Duration(seconds * 1e9)); time.Now().Before(end); {
		begun := time.Now()
		must(client.ProduceSync(context.Background(), kgo.SliceRecord(value)).FirstErr())
		latencies = append(latencies, float64(time.Since(begun).Nanoseconds())/1e6)
	}
	sort.Float64s(latencies)
	at := func(share float64) float64 { return latencies[int(share*float64(len(latencies)))] }
	fmt.Println(len(latencies), at(0.5), at(0.99), at(0.999))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
