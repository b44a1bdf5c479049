package main

import (
	"context"
	"sort"
	"sync"
	"time"
)

// tally is what came of many calls; they may be counted from anywhere.
type tally struct {
	mutex       sync.Mutex
	tookMs      []float64
	failures    int
	lastFailure string
}

func (t *tally) count(began time.Time, err error) {
	took := time.Since(began).Seconds() * 1000
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err != nil {
		t.failures, t.lastFailure = t.failures+1, err.Error()
		return
	}
	t.tookMs = append(t.tookMs, took)
}

func (t *tally) facts(seconds float64) map[string]any {
	sort.Float64s(t.tookMs)
	return map[string]any{
		"done": len(t.tookMs), "seconds": seconds, "p50_ms": t.percentile(50), "p99_ms": t.percentile(99),
		"failures": t.failures, "last_failure": t.lastFailure,
	}
}

func (t *tally) percentile(percent int) float64 {
	if len(t.tookMs) == 0 {
		return 0
	}
	return t.tookMs[(len(t.tookMs)-1)*percent/100]
}

// createTogether has so many players create one ticket after the other, until the time is up.
func createTogether(g *game, asked order) map[string]any {
	var counted tally
	var players sync.WaitGroup
	began := time.Now()
	ends := began.Add(inSeconds(asked.Seconds))
	within, cancel := context.WithDeadline(context.Background(), ends.Add(10*time.Second))
	defer cancel()
	for range asked.InFlight {
		players.Add(1)
		go func() {
			defer players.Done()
			for time.Now().Before(ends) {
				called := time.Now()
				_, err := g.create(within)
				counted.count(called, err)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
	}
	players.Wait()
	return counted.facts(time.Since(began).Seconds())
}

// play has a player come at each moment of an even stream, whatever became of those before: each creates a ticket and
// waits for its assignment. The time of one is from before the creation until the assignment is here.
func play(g *game, asked order) map[string]any {
	var counted tally
	var players sync.WaitGroup
	began := time.Now()
	for number := range int(asked.PerSecond * asked.Seconds) {
		time.Sleep(time.Until(began.Add(inSeconds(float64(number) / asked.PerSecond))))
		players.Add(1)
		go func() {
			defer players.Done()
			came := time.Now()
			counted.count(came, g.playOnce(asked.WaitS))
		}()
	}
	// How long it took to send them all: more than was asked for means that this program could not keep up.
	came := time.Since(began).Seconds()
	players.Wait()
	return counted.facts(came)
}

func (g *game) playOnce(waitS float64) error {
	within, cancel := context.WithTimeout(context.Background(), inSeconds(waitS))
	defer cancel()
	ticket, err := g.create(within)
	if err != nil {
		return err
	}
	_, err = g.watch(within, ticket)
	return err
}

func inSeconds(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
