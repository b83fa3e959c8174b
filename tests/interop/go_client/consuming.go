package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func concurrent() (said, error) {
	var seen words
	var properties atomic.Value
	started, err := startedConsumer("concurrent", own("produced"), "*",
		func(_ context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
			if string(one.Body) == "sync-1" {
				properties.Store(propertyNames(one))
			}
			seen.add(string(one.Body))
			return consumer.ConsumeSuccess
		})
	if err != nil {
		return nil, err
	}
	seen.settle(40)
	return said{"bodies": seen.sorted(), "properties": properties.Load()}, started.Shutdown()
}

func consumed(group, expression string, wanted int) (said, error) {
	var seen words
	started, err := startedConsumer(group, own("produced"), expression, seen.take)
	if err != nil {
		return nil, err
	}
	seen.settle(wanted)
	return said{"bodies": seen.sorted()}, started.Shutdown()
}

func tags() (said, error) { return consumed("tagged", "odd || none", 10) }

// After a restart of the broker: the group of `concurrent` goes on where it was.
func resume() (said, error) { return consumed("concurrent", "*", 5) }

func orderly() (said, error) {
	sender, err := startedProducer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return nil, err
	}
	defer sender.Shutdown()
	for i := 0; i < 20; i++ {
		one := message("ordered", "", "", fmt.Sprintf("%d-%d", i%2, i)).WithShardingKey(fmt.Sprint(i % 2))
		if _, err := sender.SendSync(context.Background(), one); err != nil {
			return nil, err
		}
	}
	var seen words
	started, err := startedConsumer("ordered", own("ordered"), "*", seen.take, consumer.WithConsumerOrder(true))
	if err != nil {
		return nil, err
	}
	seen.settle(20)
	result := said{}
	for _, body := range seen.all() {
		shard := "shard " + strings.Split(body, "-")[0]
		list, _ := result[shard].([]string)
		result[shard] = append(list, body)
	}
	return result, started.Shutdown()
}

func broadcast() (said, error) {
	var all []*primitive.Message
	for i := 0; i < 6; i++ {
		all = append(all, message("broadcast", "", "", fmt.Sprintf("to-all-%d", i)))
	}
	if _, err := send(all...); err != nil {
		return nil, err
	}
	var seen [2]words
	for member := range seen {
		started, err := startedConsumer("broadcast", own("broadcast"), "*", seen[member].take,
			consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return nil, err
		}
		defer started.Shutdown()
	}
	result := said{}
	for member := range seen {
		seen[member].settle(6)
		result[fmt.Sprintf("member %d", member)] = seen[member].sorted()
	}
	return result, nil
}

func delay() (said, error) {
	late := message("delayed", "", "", "late")
	late.WithDelayTimeLevel(1)
	began := time.Now()
	statuses, err := send(late)
	if err != nil {
		return nil, err
	}
	var seen words
	var waited atomic.Int64
	started, err := startedConsumer("delayed", own("delayed"), "*",
		func(_ context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
			waited.Store(time.Since(began).Milliseconds())
			return seen.take(nil, one)
		})
	if err != nil {
		return nil, err
	}
	seen.settle(1)
	return said{"statuses": statuses, "bodies": seen.all(), "afterItsTime": waited.Load() >= 950}, started.Shutdown()
}

// startedPullConsumer makes one again until its topic has a route, as startedConsumer does.
func startedPullConsumer(topic string) (rocketmq.PullConsumer, error) {
	var made rocketmq.PullConsumer
	var err error
	until(func() bool {
		made, err = newPullConsumer(topic)
		return err == nil || !strings.Contains(err.Error(), "route info not found")
	})
	return made, err
}

func newPullConsumer(topic string) (rocketmq.PullConsumer, error) {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer([]string{nameServer}), consumer.WithInstance(instance()),
		consumer.WithGroupName(own(topic)), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(own(topic), consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		return nil, err
	}
	return made, made.Start()
}

// poll uses the consumer that asks.
func poll() (said, error) {
	if _, err := send(message("polled", "", "", "polled-0"), message("polled", "", "", "polled-1")); err != nil {
		return nil, err
	}
	asking, err := startedPullConsumer("polled")
	if err != nil {
		return nil, err
	}
	var seen words
	until(func() bool {
		request, err := asking.Poll(context.Background(), time.Second)
		if err == nil {
			for _, one := range request.GetMsgList() {
				seen.add(string(one.Body))
			}
			asking.ACK(context.Background(), request, consumer.ConsumeSuccess)
		}
		return len(seen.all()) >= 2
	})
	return said{"bodies": seen.sorted()}, asking.Shutdown()
}

// rebalance counts the queues of each member by what its strategy was asked and answered.
func rebalance() (said, error) {
	if _, err := send(message("shared", "", "", "first")); err != nil {
		return nil, err
	}
	counting := func(queues *atomic.Int64) consumer.Option {
		return consumer.WithStrategy(
			func(group, id string, all []*primitive.MessageQueue, ids []string) []*primitive.MessageQueue {
				given := consumer.AllocateByAveragely(group, id, all, ids)
				if len(all) > 0 && all[0].Topic == own("shared") {
					queues.Store(int64(len(given)))
				}
				return given
			})
	}
	var seen words
	var one, other atomic.Int64
	first, err := startedConsumer("shared", own("shared"), "*", seen.take, counting(&one))
	if err != nil {
		return nil, err
	}
	defer first.Shutdown()
	until(func() bool { return one.Load() == 4 })
	alone := one.Load()
	second, err := startedConsumer("shared", own("shared"), "*", seen.take, counting(&other))
	if err != nil {
		return nil, err
	}
	until(func() bool { return one.Load() == 2 && other.Load() == 2 })
	together := []int64{one.Load(), other.Load()}
	if err := second.Shutdown(); err != nil {
		return nil, err
	}
	until(func() bool { return one.Load() == 4 })
	aloneAgain := one.Load()
	var more []*primitive.Message
	for i := 0; i < 8; i++ {
		more = append(more, message("shared", "", "", fmt.Sprintf("shared-%d", i)))
	}
	if _, err := send(more...); err != nil {
		return nil, err
	}
	until(func() bool { return len(seen.distinct()) == 9 })
	return said{"alone": alone, "together": together, "aloneAgain": aloneAgain, "bodies": seen.distinct()}, nil
}
