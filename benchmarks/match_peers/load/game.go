package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	connections = 8
	readyWithin = 15 * time.Second
	service     = "/openmatch.FrontendService/"
)

// game has some connections to the frontends, and uses them in turn.
type game struct {
	channels []*grpc.ClientConn
	turn     atomic.Uint64
}

func connect(targets []string) *game {
	found := &game{}
	for number := range connections {
		channel, err := grpc.NewClient(targets[number%len(targets)],
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(asBytes{})))
		check(err)
		check(ready(channel))
		found.channels = append(found.channels, channel)
	}
	return found
}

func ready(channel *grpc.ClientConn) error {
	within, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	for channel.Connect(); ; {
		state := channel.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !channel.WaitForStateChange(within, state) {
			return fmt.Errorf("no connection to %s within %s", channel.Target(), readyWithin)
		}
	}
}

func (g *game) close() {
	for _, channel := range g.channels {
		_ = channel.Close()
	}
}

func (g *game) channel() *grpc.ClientConn {
	return g.channels[g.turn.Add(1)%uint64(len(g.channels))]
}

// create returns the id that the frontend gave to the ticket.
func (g *game) create(within context.Context) (string, error) {
	var answer []byte
	if err := g.channel().Invoke(within, service+"CreateTicket", &newTicket, &answer); err != nil {
		return "", err
	}
	id := text(answer, 1)
	if id == "" {
		return "", fmt.Errorf("a ticket without an id")
	}
	return id, nil
}

// watch returns the connection of the first assignment.
func (g *game) watch(within context.Context, ticket string) (string, error) {
	within, cancel := context.WithCancel(within)
	defer cancel()
	kind := &grpc.StreamDesc{ServerStreams: true}
	stream, err := g.channel().NewStream(within, kind, service+"WatchAssignments")
	if err != nil {
		return "", err
	}
	asked := appendText(nil, 1, ticket)
	if err := stream.SendMsg(&asked); err != nil {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); err != nil {
		return "", err
	}
	return text([]byte(text(answer, 1)), 1), nil
}

// asBytes leaves messages as they are: who measures is to cost little.
type asBytes struct{}

func (asBytes) Name() string                      { return "proto" }
func (asBytes) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }
func (asBytes) Unmarshal(data []byte, to any) error {
	*to.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// newTicket is CreateTicketRequest{ticket: {search_fields: {tags, string_args, double_args}}}.
var newTicket = func() []byte {
	skill := appendText(nil, 1, "skill")
	skill = protowire.AppendTag(skill, 2, protowire.Fixed64Type)
	skill = protowire.AppendFixed64(skill, 0x4097700000000000)
	mode := appendText(appendText(nil, 1, "mode"), 2, "ranked")
	fields := appendText(appendText(nil, 1, string(skill)), 2, string(mode))
	fields = appendText(fields, 3, "eu-west")
	return appendText(nil, 1, string(appendText(nil, 4, string(fields))))
}()

func appendText(message []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(message, field, protowire.BytesType), value)
}

// text is the field of a message, be it text or a message; empty if there is none.
func text(message []byte, field protowire.Number) string {
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return ""
		}
		message = message[length:]
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			return string(value)
		}
		length = protowire.ConsumeFieldValue(number, kind, message)
		if length < 0 {
			return ""
		}
		message = message[length:]
	}
	return ""
}
