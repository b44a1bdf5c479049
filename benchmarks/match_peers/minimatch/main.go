// minimatch as its documentation sets it up: its frontend as a gRPC service, or its backend with 1v1 matches. No ticket
// cache, everything else at its default.
//
//	minimatch frontend|backend        the server is in PEER_URL
//
// Orders and answers are lines of JSON, as in benchmarks/peer_roles.py:
//
//	{"order": "stand"}                answered with the target of a frontend, or {} by a backend
//	{"order": "run", "tick_ms": 100}  a backend works from now on, until this process is ended
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/castaneai/minimatch"
	pb "github.com/castaneai/minimatch/gen/openmatch"
	"github.com/castaneai/minimatch/pkg/statestore"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"google.golang.org/grpc"
)

type order struct {
	Order  string `json:"order"`
	TickMs int    `json:"tick_ms"`
}

type answers = map[string]any

func main() {
	store := connect()
	obey := backendOf(store)
	if len(os.Args) > 1 && os.Args[1] == "frontend" {
		obey = frontendOf(store)
	}
	lines, answer := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked order
		check(json.Unmarshal(lines.Bytes(), &asked))
		check(answer.Encode(obey(asked)))
	}
}

func frontendOf(store statestore.FrontendStore) func(order) answers {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer()
	pb.RegisterFrontendServiceServer(server, minimatch.NewFrontendGPRCService(store))
	go func() { check(server.Serve(listener)) }()
	return func(order) answers { return answers{"target": listener.Addr().String()} }
}

func backendOf(store statestore.BackendStore) func(order) answers {
	// A line for each tick of a millisecond would measure the log.
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	backend, err := minimatch.NewBackend(store, minimatch.AssignerFunc(assign), minimatch.WithBackendLogger(quiet))
	check(err)
	everyone := &pb.MatchProfile{Name: "1v1", Pools: []*pb.Pool{{Name: "everyone"}}}
	backend.AddMatchFunction(everyone, minimatch.MatchFunctionSimple1vs1)
	return func(asked order) answers {
		if asked.Order == "run" {
			every := time.Duration(asked.TickMs) * time.Millisecond
			go func() { check(backend.Start(context.Background(), every)) }()
		}
		return answers{}
	}
}

func assign(_ context.Context, matches []*pb.Match) ([]*pb.AssignmentGroup, error) {
	groups := make([]*pb.AssignmentGroup, 0, len(matches))
	for number, match := range matches {
		ids := make([]string, 0, len(match.Tickets))
		for _, ticket := range match.Tickets {
			ids = append(ids, ticket.Id)
		}
		connection := fmt.Sprintf("game-%d.example.com:7777", number)
		groups = append(groups, &pb.AssignmentGroup{TicketIds: ids, Assignment: &pb.Assignment{Connection: connection}})
	}
	return groups, nil
}

func connect() *statestore.RedisStore {
	parts, err := url.Parse(os.Getenv("PEER_URL"))
	check(err)
	option := rueidis.ClientOption{InitAddress: []string{parts.Host}, DisableCache: true}
	client, err := rueidis.NewClient(option)
	check(err)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: option})
	check(err)
	return statestore.NewRedisStore(client, locker)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
