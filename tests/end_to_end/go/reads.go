// Lone consumers of franz-go, with its defaults, all in one process:
//
//	reads SECONDS CLIENT_ID,ADDRESS,TOPIC,PARTITIONS...
//
// Each reads all partitions of its topic from the start. At the end, each has a line on standard output: its client-id,
// and MS:RECORDS for each time at which records arrived. Those that arrive within 10 ms count as one.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const stepMs = 10

func main() {
	seconds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	begin := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), begin.Add(time.Duration(seconds)*time.Second))
	defer cancel()
	lines := make([]string, len(os.Args)-2)
	var all sync.WaitGroup
	for number, cell := range os.Args[2:] {
		all.Go(func() { lines[number] = read(ctx, begin, strings.Split(cell, ",")) })
	}
	all.Wait()
	for _, line := range lines {
		fmt.Println(line)
	}
}

func read(ctx context.Context, begin time.Time, cell []string) string {
	partitions, err := strconv.Atoi(cell[3])
	if err != nil {
		panic(err)
	}
	offsets := map[int32]kgo.Offset{}
	for partition := range partitions {
		offsets[int32(partition)] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(
		kgo.ClientID(cell[0]),
		kgo.SeedBrokers(cell[1]),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{cell[2]: offsets}),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	seen := map[int64]int{}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if count := fetches.NumRecords(); count > 0 {
			seen[time.Since(begin).Milliseconds()/stepMs*stepMs] += count
		}
		for _, failed := range fetches.Errors() {
			if ctx.Err() == nil {
				panic(failed.Err)
			}
		}
	}
	times := make([]int64, 0, len(seen))
	for ms := range seen {
		times = append(times, ms)
	}
	slices.Sort(times)
	words := []string{cell[0]}
	for _, ms := range times {
		words = append(words, fmt.Sprintf("%d:%d", ms, seen[ms]))
	}
	return strings.Join(words, " ")
}
