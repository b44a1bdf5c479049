// What minimatch does with the server, in Go, with the libraries for commands, locks and ids that it has.
//
//	go_peer backend SERVER PREFIX TICK_MS    pairs tickets, and prints a line of JSON for each pair
//	go_peer frontend SERVER PREFIX TICKETS   creates tickets, and prints a line for each that is assigned
//	go_peer count SERVER PREFIX KEY TIMES    reads a number and writes the next one, under the lock
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/rs/xid"
)

const (
	limit     = 10_000
	pending   = time.Minute
	assigned  = time.Minute
	ticketTTL = 10 * time.Minute
)

type line struct {
	Connection string   `json:"connection"`
	Tickets    []string `json:"tickets"`
}

type peer struct {
	rueidis.Client
	locker rueidislock.Locker
	prefix string
}

func main() {
	ctx, us := context.Background(), connect(os.Args[2], os.Args[3])
	switch os.Args[1] {
	case "backend":
		fmt.Println("ready")
		for range time.Tick(time.Duration(number(os.Args[4])) * time.Millisecond) {
			us.tick(ctx)
		}
	case "frontend":
		us.watch(ctx, us.createAll(ctx, number(os.Args[4])))
	case "count":
		for range number(os.Args[5]) {
			us.count(ctx, os.Args[4])
		}
	}
}

func connect(server, prefix string) peer {
	option := rueidis.ClientOption{InitAddress: []string{server}, DisableCache: true}
	client, err := rueidis.NewClient(option)
	check(err)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: option})
	check(err)
	return peer{client, locker, prefix}
}

// The lock as minimatch takes it: the prefix is part of its name.
func (us peer) lock(ctx context.Context) context.CancelFunc {
	_, unlock, err := us.locker.WithContext(ctx, us.prefix+"fetchTicketsLock")
	check(err)
	return unlock
}

// ---- backend

func (us peer) tick(ctx context.Context) {
	waiting := us.readable(ctx, us.fetch(ctx))
	for len(waiting) >= 2 {
		us.assign(ctx, waiting[:2])
		waiting = waiting[2:]
	}
	us.release(ctx, waiting)
}

func (us peer) fetch(ctx context.Context) []string {
	defer us.lock(ctx)()
	waiting, err := us.Do(ctx, us.B().Srandmember().Key(us.prefix+"allTickets").Count(limit).Build()).AsStrSlice()
	check(err)
	now := time.Now()
	since := us.B().Zrangebyscore().Key(us.proposed()).
		Min(strconv.FormatInt(now.Add(-pending).Unix(), 10)).
		Max(strconv.FormatInt(now.Add(time.Hour).Unix(), 10)).Build()
	busy, err := us.Do(ctx, since).AsStrSlice()
	check(err)
	free := without(waiting, busy)
	if len(free) > 0 {
		adding := us.B().Zadd().Key(us.proposed()).ScoreMember()
		for _, id := range free {
			adding = adding.ScoreMember(float64(now.Unix()), id)
		}
		check(us.Do(ctx, adding.Build()).Error())
	}
	return free
}

func (us peer) readable(ctx context.Context, ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	keys := make([]string, 0, len(ids))
	for _, id := range ids {
		keys = append(keys, us.prefix+id)
	}
	bodies, err := us.Do(ctx, us.B().Mget().Key(keys...).Build()).ToArray()
	check(err)
	var found []string
	for place, body := range bodies {
		if !body.IsNil() {
			found = append(found, ids[place])
		}
	}
	return found
}

var servers = 0

func (us peer) assign(ctx context.Context, pair []string) {
	servers++
	made := line{fmt.Sprintf("go-%d-%d.example:7777", os.Getpid(), servers), pair}
	// Before anybody can see it: this process may be ended at any moment.
	say(made)
	for _, id := range pair {
		value := string(field(1, []byte(made.Connection)))
		check(us.Do(ctx, us.B().Set().Key(us.prefix+"assign:"+id).Value(value).Ex(assigned).Build()).Error())
	}
	us.deindex(ctx, pair)
	for _, id := range pair {
		seconds := int64(assigned / time.Second)
		check(us.Do(ctx, us.B().Expire().Key(us.prefix+id).Seconds(seconds).Build()).Error())
	}
}

func (us peer) deindex(ctx context.Context, ids []string) {
	defer us.lock(ctx)()
	check(us.Do(ctx, us.B().Zrem().Key(us.proposed()).Member(ids...).Build()).Error())
	check(us.Do(ctx, us.B().Srem().Key(us.prefix+"allTickets").Member(ids...).Build()).Error())
}

func (us peer) release(ctx context.Context, ids []string) {
	if len(ids) > 0 {
		defer us.lock(ctx)()
		check(us.Do(ctx, us.B().Zrem().Key(us.proposed()).Member(ids...).Build()).Error())
	}
}

func (us peer) proposed() string {
	return us.prefix + "proposed_ticket_ids"
}

func without(all, some []string) []string {
	taken := map[string]bool{}
	for _, id := range some {
		taken[id] = true
	}
	var left []string
	for _, id := range all {
		if !taken[id] {
			left = append(left, id)
		}
	}
	return left
}

// ---- frontend

func (us peer) createAll(ctx context.Context, count int) map[string]bool {
	ids := map[string]bool{}
	for range count {
		id := xid.New().String()
		body := append(field(1, []byte(id)), field(4, nil)...)
		check(us.Do(ctx, us.B().Set().Key(us.prefix+id).Value(string(body)).Ex(ticketTTL).Build()).Error())
		check(us.Do(ctx, us.B().Sadd().Key(us.prefix+"allTickets").Member(id).Build()).Error())
		ids[id] = true
	}
	return ids
}

func (us peer) watch(ctx context.Context, ids map[string]bool) {
	for len(ids) > 0 {
		for id := range ids {
			body, err := us.Do(ctx, us.B().Get().Key(us.prefix+"assign:"+id).Build()).AsBytes()
			if rueidis.IsRedisNil(err) {
				continue
			}
			check(err)
			say(line{string(body[2 : 2+body[1]]), []string{id}})
			delete(ids, id)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ---- lock

func (us peer) count(ctx context.Context, key string) {
	defer us.lock(ctx)()
	read, err := us.Do(ctx, us.B().Get().Key(key).Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		check(err)
	}
	next := strconv.FormatInt(read+1, 10)
	check(us.Do(ctx, us.B().Set().Key(key).Value(next).Ex(assigned).Build()).Error())
}

// ----

// A field of Protocol Buffers, of less than 128 bytes.
func field(number byte, content []byte) []byte {
	return append([]byte{number<<3 | 2, byte(len(content))}, content...)
}

func say(made line) {
	check(json.NewEncoder(os.Stdout).Encode(made))
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
