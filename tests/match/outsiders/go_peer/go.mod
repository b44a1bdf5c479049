module kizuna/tests/go_peer

go 1.24

require (
	github.com/redis/rueidis v1.0.31
	github.com/rs/xid v1.6.0
)

require golang.org/x/sys v0.17.0 // indirect
