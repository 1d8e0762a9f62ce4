// Posts and who likes them, on net/http and the official driver.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

const pageSize = 10

type post struct {
	Slug        string    `bson:"_id" json:"slug"`
	Author      string    `bson:"author" json:"author"`
	Title       string    `bson:"title" json:"title"`
	PublishedAt time.Time `bson:"publishedAt" json:"publishedAt"`
	LikeCount   int       `bson:"likeCount" json:"likeCount"`
	// The users who like it. Most posts have few, and some have thousands.
	Likes []string `bson:"likes" json:"likes,omitempty"`
}

type service struct{ posts *mongo.Collection }

func (s service) create(r *http.Request) (any, error) {
	var p post
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Slug == "" {
		return nil, errBadRequest
	}
	p.LikeCount, p.Likes = 0, []string{}
	_, err := s.posts.InsertOne(r.Context(), p)
	return p, err
}

// The newest posts, without the users who like them.
func (s service) list(r *http.Request) (any, error) {
	page, _ := strconv.ParseInt(r.FormValue("page"), 10, 64)
	newest := options.Find().SetSort(bson.D{{Key: "publishedAt", Value: -1}}).SetProjection(bson.D{{Key: "likes", Value: 0}})
	return s.find(r.Context(), bson.D{}, newest.SetSkip(max(page-1, 0)*pageSize).SetLimit(pageSize))
}

func (s service) likedBy(r *http.Request) (any, error) {
	filter := bson.D{{Key: "likes", Value: r.PathValue("user")}}
	return s.find(r.Context(), filter, options.Find().SetSort(bson.D{{Key: "publishedAt", Value: -1}}))
}

func (s service) find(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (any, error) {
	cursor, err := s.posts.Find(ctx, filter, opts)
	if err != nil {
		return nil, err
	}
	posts := []post{}
	return posts, cursor.All(ctx, &posts)
}

func (s service) get(r *http.Request) (any, error) {
	var p post
	err := s.posts.FindOne(r.Context(), bson.D{{Key: "_id", Value: r.PathValue("slug")}}).Decode(&p)
	return p, err
}

// A second like of the same user changes nothing.
func (s service) like(r *http.Request) (any, error) {
	slug, user := r.PathValue("slug"), r.PathValue("user")
	filter := bson.D{{Key: "_id", Value: slug}, {Key: "likes", Value: bson.D{{Key: "$ne", Value: user}}}}
	return s.changeLikes(r.Context(), filter, "$push", user, 1)
}

func (s service) unlike(r *http.Request) (any, error) {
	slug, user := r.PathValue("slug"), r.PathValue("user")
	return s.changeLikes(r.Context(), bson.D{{Key: "_id", Value: slug}, {Key: "likes", Value: user}}, "$pull", user, -1)
}

func (s service) changeLikes(ctx context.Context, filter bson.D, operator, user string, by int) (any, error) {
	update := bson.D{
		{Key: operator, Value: bson.D{{Key: "likes", Value: user}}},
		{Key: "$inc", Value: bson.D{{Key: "likeCount", Value: by}}},
	}
	result, err := s.posts.UpdateOne(ctx, filter, update)
	if err != nil {
		return nil, err
	}
	return bson.M{"changed": result.ModifiedCount == 1}, nil
}

// How many likes each author has, and of how many users.
func (s service) authors(r *http.Request) (any, error) {
	cursor, err := s.posts.Aggregate(r.Context(), bson.A{
		bson.M{"$unwind": "$likes"},
		bson.M{"$group": bson.M{"_id": "$author", "likes": bson.M{"$sum": 1}, "users": bson.M{"$addToSet": "$likes"}}},
		bson.M{"$project": bson.M{"likes": 1, "users": bson.M{"$size": "$users"}}},
		bson.M{"$sort": bson.D{{Key: "likes", Value: -1}, {Key: "_id", Value: 1}}},
	})
	if err != nil {
		return nil, err
	}
	authors := []bson.M{}
	return authors, cursor.All(r.Context(), &authors)
}

func (s service) remove(r *http.Request) (any, error) {
	result, err := s.posts.DeleteOne(r.Context(), bson.D{{Key: "_id", Value: r.PathValue("slug")}})
	if err == nil && result.DeletedCount == 0 {
		err = mongo.ErrNoDocuments
	}
	return nil, err
}

var errBadRequest = errors.New("a post has a slug")

func answer(handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := handle(r)
		status := http.StatusOK
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			status, body = http.StatusNotFound, nil
		case errors.Is(err, errBadRequest):
			status, body = http.StatusBadRequest, nil
		case mongo.IsDuplicateKeyError(err):
			status, body = http.StatusConflict, nil
		case err != nil:
			log.Print(err)
			status, body = http.StatusInternalServerError, nil
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func main() {
	uri, err := connstring.ParseAndValidate(cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://127.0.0.1:27017/blog"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri.String()))
	if err != nil {
		log.Fatal(err)
	}
	s := service{client.Database(uri.Database).Collection("posts")}
	newest := mongo.IndexModel{Keys: bson.D{{Key: "publishedAt", Value: -1}}}
	if _, err := s.posts.Indexes().CreateOne(context.Background(), newest); err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /posts", answer(s.create))
	http.Handle("GET /posts", answer(s.list))
	http.Handle("GET /posts/{slug}", answer(s.get))
	http.Handle("DELETE /posts/{slug}", answer(s.remove))
	http.Handle("PUT /posts/{slug}/likes/{user}", answer(s.like))
	http.Handle("DELETE /posts/{slug}/likes/{user}", answer(s.unlike))
	http.Handle("GET /users/{user}/likes", answer(s.likedBy))
	http.Handle("GET /authors", answer(s.authors))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8080"), nil))
}
