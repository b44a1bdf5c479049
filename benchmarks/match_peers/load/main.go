// A game that speaks Open Match's gRPC, as many players at once as it is told to be: the same code for every frontend.
//
// Orders and answers are lines of JSON, as in benchmarks/peer_roles.py:
//
//	{"order": "create", "targets": ["127.0.0.1:50504"], "in_flight": 64, "seconds": 1}
//	{"order": "play", "targets": ["127.0.0.1:50504"], "per_second": 1000, "seconds": 3, "wait_s": 10}
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type order struct {
	Order     string   `json:"order"`
	Targets   []string `json:"targets"`
	InFlight  int      `json:"in_flight"`
	PerSecond float64  `json:"per_second"`
	Seconds   float64  `json:"seconds"`
	WaitS     float64  `json:"wait_s"`
}

func main() {
	orders := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for orders.Scan() {
		var asked order
		check(json.Unmarshal(orders.Bytes(), &asked))
		check(answers.Encode(obey(asked)))
	}
}

func obey(asked order) any {
	game := connect(asked.Targets)
	defer game.close()
	switch asked.Order {
	case "create":
		return createTogether(game, asked)
	case "play":
		return play(game, asked)
	}
	check(fmt.Errorf("no order %q", asked.Order))
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
