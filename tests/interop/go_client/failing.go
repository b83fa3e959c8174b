package main

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func retry() (said, error) {
	if _, err := send(message("retried", "", "retried-key", "once-more")); err != nil {
		return nil, err
	}
	var seen words
	started, err := startedConsumer("retried", own("retried"), "*",
		func(ctx context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
			if concurrently, there := primitive.GetConcurrentlyCtx(ctx); there {
				concurrently.DelayLevelWhenNextConsume = 1
			}
			seen.add(fmt.Sprintf("%s %d", one.Body, one.ReconsumeTimes))
			if one.ReconsumeTimes < 2 {
				return consumer.ConsumeRetryLater
			}
			return consumer.ConsumeSuccess
		})
	if err != nil {
		return nil, err
	}
	seen.settle(3)
	return said{"seen": seen.all()}, started.Shutdown()
}

// deadLetter reads the dead letters with a consumer of their topic.
func deadLetter() (said, error) {
	if _, err := send(message("hopeless", "", "hopeless-key", "dead")); err != nil {
		return nil, err
	}
	var seen, dead words
	started, err := startedConsumer("hopeless", own("hopeless"), "*",
		func(_ context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
			seen.add(fmt.Sprintf("%s %d", one.Body, one.ReconsumeTimes))
			return consumer.ConsumeRetryLater
		}, consumer.WithMaxReconsumeTimes(1))
	if err != nil {
		return nil, err
	}
	defer started.Shutdown()
	seen.settle(2)
	reader, err := startedConsumer("coroner", "%DLQ%"+own("hopeless"), "*",
		func(_ context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
			dead.add(fmt.Sprintf("%s %d %s", one.Body, one.ReconsumeTimes, propertyNames(one)))
			return consumer.ConsumeSuccess
		})
	if err != nil {
		return nil, err
	}
	dead.settle(1)
	return said{"seen": seen.all(), "dead": dead.all()}, reader.Shutdown()
}

// trace sends and consumes with traces on, and reads the traces.
func trace() (said, error) {
	config := func() *primitive.TraceConfig {
		return &primitive.TraceConfig{
			GroupName: own("tracers-" + instance()), Access: primitive.Local,
			NamesrvAddrs: []string{nameServer}, Resolver: primitive.NewPassthroughResolver([]string{nameServer}),
		}
	}
	sender, err := startedProducer(producer.WithTrace(config()))
	if err != nil {
		return nil, err
	}
	defer sender.Shutdown()
	sent, err := sender.SendSync(context.Background(), message("traced", "t", "traced-key", "traced"))
	if err != nil {
		return nil, err
	}
	var seen, traces words
	kinds := map[string]bool{}
	started, err := startedConsumer("traced", own("traced"), "*", seen.take, consumer.WithTrace(config()))
	if err != nil {
		return nil, err
	}
	defer started.Shutdown()
	seen.settle(1)
	reader, err := startedConsumer("trace-readers", "RMQ_SYS_TRACE_TOPIC", "*",
		func(_ context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
			for _, trace := range strings.Split(string(one.Body), "\x02") {
				if fields := strings.Split(trace, "\x01"); strings.Contains(trace, sent.MsgID) {
					traces.add(fields[0])
				}
			}
			return consumer.ConsumeSuccess
		})
	if err != nil {
		return nil, err
	}
	until(func() bool {
		for _, kind := range traces.all() {
			kinds[kind] = true
		}
		return len(kinds) == 3
	})
	var list []string
	for kind := range kinds {
		list = append(list, kind)
	}
	sort.Strings(list)
	return said{"traces": list}, reader.Shutdown()
}
