module kizuna/benchmarks/minimatch

go 1.24

require (
	github.com/castaneai/minimatch v1.0.0
	github.com/redis/rueidis v1.0.31
	google.golang.org/grpc v1.69.2
)
