package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Producers and consumers of one application; every topic and group begins with the prefix.

const (
	patience = 60 * time.Second
	// How long a step waits after it has all it wants, so that one message too many shows.
	moment = 400 * time.Millisecond
)

var (
	nameServer, prefix string
	instances          atomic.Int64
)

func own(name string) string { return prefix + "-" + name }

func instance() string { return fmt.Sprintf("go-%d", instances.Add(1)) }

func message(topic, tag, key, body string) *primitive.Message {
	one := primitive.NewMessage(own(topic), []byte(body))
	if tag != "" {
		one.WithTag(tag)
	}
	if key != "" {
		one.WithKeys([]string{key})
	}
	return one
}

func startedProducer(options ...producer.Option) (rocketmq.Producer, error) {
	name := instance()
	made, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNameServer([]string{nameServer}),
		producer.WithInstanceName(name),
		producer.WithGroupName(own("producers-" + name)),
		producer.WithSendMsgTimeout(20 * time.Second),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

func send(messages ...*primitive.Message) ([]string, error) {
	sender, err := startedProducer()
	if err != nil {
		return nil, err
	}
	defer sender.Shutdown()
	var statuses []string
	for _, one := range messages {
		sent, err := sender.SendSync(context.Background(), one)
		if err != nil {
			return statuses, err
		}
		statuses = append(statuses, fmt.Sprintf("%d %d %s", sent.Status, len(sent.OffsetMsgID), sent.RegionID))
	}
	return statuses, nil
}

type listener func(ctx context.Context, one *primitive.MessageExt) consumer.ConsumeResult

// startedConsumer makes one again until its topic has a route: this client gives up where Java's waits.
func startedConsumer(group, topic, expression string, take listener, options ...consumer.Option) (
	rocketmq.PushConsumer, error) {
	var made rocketmq.PushConsumer
	var err error
	until(func() bool {
		made, err = newConsumer(group, topic, expression, take, options)
		return err == nil || !strings.Contains(err.Error(), "route info not found")
	})
	return made, err
}

func newConsumer(group, topic, expression string, take listener, options []consumer.Option) (
	rocketmq.PushConsumer, error) {
	made, err := rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNameServer([]string{nameServer}),
		consumer.WithInstance(instance()),
		consumer.WithGroupName(own(group)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	err = made.Subscribe(topic, selector,
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			result := consumer.ConsumeSuccess
			for _, one := range messages {
				if answer := take(ctx, one); answer != consumer.ConsumeSuccess {
					result = answer
				}
			}
			return result, nil
		})
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		made.Shutdown()
		return nil, err
	}
	return made, nil
}

// words is what a listener has seen, in order.
type words struct {
	lock sync.Mutex
	list []string
}

func (w *words) add(word string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.list = append(w.list, word)
}

func (w *words) all() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return append([]string{}, w.list...)
}

func (w *words) clear() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.list = nil
}

func (w *words) sorted() []string {
	list := w.all()
	sort.Strings(list)
	return list
}

func (w *words) distinct() []string {
	var list []string
	for _, word := range w.sorted() {
		if len(list) == 0 || list[len(list)-1] != word {
			list = append(list, word)
		}
	}
	return list
}

func (w *words) take(_ context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
	w.add(string(one.Body))
	return consumer.ConsumeSuccess
}

func (w *words) settle(wanted int) {
	until(func() bool { return len(w.all()) >= wanted })
	time.Sleep(moment)
}

func until(holds func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return holds()
}

func propertyNames(one *primitive.MessageExt) []string {
	var names []string
	for name := range one.GetProperties() {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
