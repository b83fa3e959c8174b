// RocketMQ's Go client v2 as an application uses it: one JSON line a step, which the test compares.
//
// go_client NAME_SERVER PREFIX CHAIN...: a chain is names of steps with commas between; chains run side by side. PREFIX
// begins every topic and group, so that scripts can share a broker.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
)

type said map[string]any

var steps = map[string]func() (said, error){
	"produce":      produce,
	"sendMore":     sendMore,
	"requestReply": requestReply,
	"concurrent":   concurrent,
	"tags":         tags,
	"resume":       resume,
	"orderly":      orderly,
	"broadcast":    broadcast,
	"delay":        delay,
	"rebalance":    rebalance,
	"poll":         poll,
	"retry":        retry,
	"deadLetter":   deadLetter,
	"trace":        trace,
}

func main() {
	nameServer, prefix = os.Args[1], os.Args[2]
	var chains sync.WaitGroup
	var output sync.Mutex
	for _, chain := range os.Args[3:] {
		chains.Add(1)
		go func() {
			defer chains.Done()
			for _, step := range strings.Split(chain, ",") {
				result := run(step)
				line, err := json.Marshal(result)
				if err != nil {
					panic(err)
				}
				output.Lock()
				fmt.Println(string(line))
				output.Unlock()
			}
		}()
	}
	chains.Wait()
}

func run(step string) said {
	result, err := steps[step]()
	if result == nil {
		result = said{}
	}
	if err != nil {
		result["problem"] = err.Error()
	}
	result["step"] = step
	return result
}
