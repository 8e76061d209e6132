package example

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var bootstrapServers = cmp.Or(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), "localhost:9092")
var proxy = "http://" + cmp.Or(os.Getenv("KAFKA_QUOTA_PROXY_ADMIN"), "localhost:9308") + "/testing/"

// throttleTimes has the throttle times that franz-go reports.
type throttleTimes []time.Duration

func (times *throttleTimes) OnBrokerThrottle(_ kgo.BrokerMetadata, interval time.Duration, _ bool) {
	*times = append(*times, interval)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func call(response *http.Response, err error) *json.Decoder {
	if must(response, err).StatusCode != http.StatusOK {
		panic(response.Status)
	}
	return json.NewDecoder(response.Body)
}

func TestProducerWaitsAndLosesNothing(t *testing.T) {
	order := `{"api": "Produce", "throttle_time_ms": 300, "count": 3, "client_id": "go-app"}`
	call(http.Post(proxy+"reset", "application/json", nil))
	call(http.Post(proxy+"throttles", "application/json", strings.NewReader(order)))
	var reported throttleTimes
	client := must(kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrapServers, ",")...), kgo.ClientID("go-app"),
		kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.WithHooks(&reported)))
	defer client.Close()
	began := time.Now()
	topic := fmt.Sprint("orders-", began.UnixNano())
	for number := range 5 {
		record := &kgo.Record{Topic: topic, Value: fmt.Append(nil, "order ", number)}
		if got := must(client.ProduceSync(t.Context(), record).First()).Offset; got != int64(number) {
			t.Errorf("record %d has offset %d", number, got)
		}
	}
	if elapsed := time.Since(began); elapsed < 900*time.Millisecond {
		t.Error("the producer took only", elapsed)
	}
	var observed []struct {
		TimeMs int `json:"throttle_time_ms"`
	}
	call(http.Get(proxy + "observed?client_id=go-app")).Decode(&observed)
	if got := fmt.Sprint(reported, observed); got != "[300ms 300ms 300ms] [{300} {300} {300}]" {
		t.Error("franz-go reported, and the proxy observed,", got)
	}
}
