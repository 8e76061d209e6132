// The OTLP receiver of the OpenTelemetry Collector. It writes each request that it receives as a line of JSON.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(endpoint string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	http := map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": endpoint}}}
	if err := confmap.NewFromStringMap(http).Unmarshal(config); err != nil {
		return err
	}
	var lock sync.Mutex
	next, err := consumer.NewMetrics(func(_ context.Context, metrics pmetric.Metrics) error {
		line, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(metrics)
		if err != nil {
			return err
		}
		lock.Lock()
		defer lock.Unlock()
		_, err = fmt.Println(string(line))
		return err
	})
	if err != nil {
		return err
	}
	receiver, err := factory.CreateMetrics(ctx, receivertest.NewNopSettings(factory.Type()), config, next)
	if err != nil {
		return err
	}
	if err := receiver.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	<-ctx.Done()
	return receiver.Shutdown(context.Background())
}
