package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func evenOrOdd(number int) string { return []string{"even", "odd"}[number%2] }

func produce() (said, error) {
	var plain []*primitive.Message
	for i := 0; i < 10; i++ {
		plain = append(plain, message("produced", evenOrOdd(i), fmt.Sprintf("key-%d", i), fmt.Sprintf("sync-%d", i)))
	}
	statuses, err := send(plain...)
	if err != nil {
		return nil, err
	}
	sender, err := startedProducer()
	if err != nil {
		return nil, err
	}
	defer sender.Shutdown()
	var answered sync.WaitGroup
	var failed words
	for i := 0; i < 10; i++ {
		answered.Add(1)
		err := sender.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				failed.add(err.Error())
			}
			answered.Done()
		}, message("produced", evenOrOdd(i), "", fmt.Sprintf("async-%d", i)))
		if err != nil {
			return nil, err
		}
	}
	answered.Wait()
	for i := 0; i < 10; i++ {
		one := message("produced", "plain", "", fmt.Sprintf("oneway-%d", i))
		if err := sender.SendOneWay(context.Background(), one); err != nil {
			return nil, err
		}
	}
	var batch []*primitive.Message
	for i := 0; i < 10; i++ {
		batch = append(batch, message("produced", "plain", "", fmt.Sprintf("batch-%d", i)))
	}
	sent, err := sender.SendSync(context.Background(), batch...)
	if err != nil {
		return nil, err
	}
	return said{
		"statuses": statuses, "failed": failed.all(), "batch": sent.Status,
		"batchOffsetIds": len(strings.Split(sent.OffsetMsgID, ",")),
	}, nil
}

func sendMore() (said, error) {
	var more []*primitive.Message
	for i := 0; i < 5; i++ {
		more = append(more, message("produced", "more", "", fmt.Sprintf("more-%d", i)))
	}
	statuses, err := send(more...)
	return said{"statuses": statuses}, err
}

func requestReply() (said, error) {
	replier, err := startedProducer()
	if err != nil {
		return nil, err
	}
	defer replier.Shutdown()
	var problems words
	answer := func(_ context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
		if string(one.Body) == "no question" {
			return consumer.ConsumeSuccess
		}
		body := []byte("reply to " + string(one.Body))
		reply, err := consumer.CreateReplyMessage(one, body)
		if err == nil {
			reply.Body = body // The client has left it out.
			_, err = replier.SendSync(context.Background(), reply)
		}
		if err != nil {
			problems.add(err.Error())
		}
		return consumer.ConsumeSuccess
	}
	asker, err := startedProducer()
	if err != nil {
		return nil, err
	}
	defer asker.Shutdown()
	// Makes the topic: a request waits for no route.
	if _, err := asker.SendSync(context.Background(), message("asked", "", "", "no question")); err != nil {
		return nil, err
	}
	started, err := startedConsumer("asked", own("asked"), "*", answer)
	if err != nil {
		return nil, err
	}
	defer started.Shutdown()
	// A reply finds its way only after a heartbeat of the asker, which this client sends some time later.
	until(func() bool {
		_, err := asker.Request(context.Background(), 3*time.Second, message("asked", "", "", "warm-up"))
		return err == nil
	})
	problems.clear()
	replies := []string{}
	for i := 0; i < 3; i++ {
		question := message("asked", "", "", fmt.Sprintf("question-%d", i))
		reply, err := asker.Request(context.Background(), 30*time.Second, question)
		if err != nil {
			return said{"replies": replies, "problems": problems.all()}, err
		}
		replies = append(replies, string(reply.Body))
	}
	return said{"replies": replies, "problems": problems.all()}, nil
}
